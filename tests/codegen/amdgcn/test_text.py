"""Printed kernels read back: the same text again, the same facts; source lines and names stand in comments."""

from __future__ import annotations

import pytest

import mimw
import mimw.language as ml
from mimw.codegen.amdgcn.parser import ParseError, parse_module
from mimw.codegen.amdgcn.printer import print_module
from mimw.tools.main import main
from tests.mir import cases
from tests.test_examples import EXAMPLES


@mimw.kernel
def scaled(x_ptr, out_ptr, n, factor, BLOCK: ml.constexpr):
    offsets = ml.program_id(1) * BLOCK + ml.arange(0, BLOCK)
    doubled = ml.load(x_ptr + offsets, mask=offsets < n) * factor
    ml.store(out_ptr + offsets, doubled, mask=offsets < n)


def _without_comments(text: str) -> str:
    lines = (line.partition(";")[0].rstrip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


SOME = [c for n, c in enumerate(cases()) if n % 40 == 0]


@pytest.mark.parametrize("case", SOME, ids=[c.name for c in SOME])
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_printed_text_reads_back(case, target: str) -> None:  # type: ignore[no-untyped-def]
    from mimw.compiler import StageTimes, compile_module
    from mimw.target import get_target

    kernel = compile_module(case.module(), get_target(target), {}, StageTimes(), keep_ir=False)
    text = kernel.asm["amdgcn"]
    assert isinstance(text, str)
    module = parse_module(text)
    assert module.target == target
    assert print_module(module) == _without_comments(text)


def test_text_carries_source_lines_and_names() -> None:
    text = scaled.compile(["*f32:16", "*f32:16", "i32", "f32"], {"BLOCK": 256}, target="gfx942").asm["amdgcn"]
    assert isinstance(text, str)
    assert "; doubled = ml.load(x_ptr + offsets, mask=offsets < n) * factor" in text
    assert any("v_mul_f32" in line and line.endswith("; doubled") for line in text.splitlines())
    facts = parse_module(text).facts
    assert facts.workgroup_ids == "xy" and facts.kernarg_bytes == 24


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  v_mov_b32 v0, v1\n", "outside of a kernel"),
        ('.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n', "no kernel"),
        (".type k,@function\nk:\n  v_mov_b32 v0, q1\n", "line 3: q1 is no register"),
        (".type k,@function\nk:\n  v_mov_b32 v0\n", "takes 2 operands"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_module(text)


_INSPECT = [
    "inspect",
    "examples/01_vector_add.py:add",
    "--signature",
    "*f32:16,*f32:16,*f32:16,i32:16,1024",
    "--color",
    "never",
]


def test_inspect_shows_the_text_of_an_amd_target(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    assert main([*_INSPECT, "--target", "gfx950"]) == 0
    shown = capsys.readouterr().out
    assert '.amdgcn_target "amdgcn-amd-amdhsa--gfx950"' in shown and "buffer_load_dwordx4" in shown
    assert main([*_INSPECT, "--target", "gfx950", "--stage", "ptx"]) != 0
    assert "has no stage ptx" in capsys.readouterr().err
