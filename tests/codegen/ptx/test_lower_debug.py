"""Printing and assertions in PTX: the lines of the tile simulator, and what the assembler says of the calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mimw.codegen.ptx.assemble import find_ptxas
from mimw.codegen.ptx.parser import parse
from mimw.codegen.ptx.printer import print_module
from mimw.diagnostics import CompilationError
from mimw.sim.errors import SimulationError as TileError
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.run import RunReport, run_ptx
from tests.codegen.ptx.print_kernels import (
    assert_add,
    cases,
    check_positive,
    print_add,
    print_while_multiplying,
    reduce_with,
)

_NAMES = {"float32": "f32", "float16": "f16", "float64": "f64", "bfloat16": "bf16"}
_NAMES |= {"float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5"}


def signature(kernel: Any, args: list[Any]) -> dict[str, str]:
    """Types of the arguments, as `compile` takes them."""
    out: dict[str, str] = {}
    for name, value in zip(kernel.parameter_names, args, strict=False):
        if isinstance(value, np.ndarray):
            t = value.dtype.name
            out[name] = "*" + _NAMES.get(t, t.replace("uint", "u").replace("int", "i"))
        else:
            out[name] = "f32" if isinstance(value, float) else "i32"
    return out


def run_text(case: tuple[Any, Any, list[Any], dict[str, Any]], target: str, **options: Any) -> RunReport:
    """The case's PTX in the simulator."""
    kernel, grid, args, constants = case
    compiled = kernel.compile(signature(kernel, args), constants, target=target, assembled=False, **options)
    whole = (*grid, 1, 1)[:3]
    return run_ptx(compiled.asm["ptx"], None, whole, args, shared_bytes=compiled.metadata.shared_bytes)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", list(cases()))
def test_the_lines_are_those_of_the_tile_simulator(name: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    kernel, grid, args, constants = cases()[name]
    kernel[grid](*args, **constants)
    expected = sorted(capsys.readouterr().out.splitlines())
    report = run_text(cases()[name], target)
    assert capsys.readouterr().out.splitlines() == report.printed
    assert sorted(report.printed) == expected and expected


def test_lines_as_users_see_them(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_text(cases()["matrix"], "sm_90a").printed
    assert "pid (0, 1, 0) idx (2, 3) 100% \u00e9: tile, (operand 0) 19" in lines
    assert "pid (0, 0, 0) idx () 100% \u00e9: tile, (operand 1) 9" in lines
    assert "pid (0, 0, 0) idx (4, 7) 100% \u00e9: tile, (operand 2) 1" in lines
    assert "pid (0, 0, 0) idx (1) sum 92" in lines
    assert lines.count("pid (0, 1, 0) second") == 1 and "pid (0, 0, 0) second" not in lines


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas")
def test_the_assembler_takes_it(target: str) -> None:
    for name in ("matrix", "scalars", "float8_e4m3fn", "odd", "matmul"):
        kernel, _, args, constants = cases()[name]
        compiled = kernel.compile(signature(kernel, args), constants, target=target)
        # ptxas serialises wgmma in any function with a call, whatever is waited for before it.
        other = [w for w in compiled.metadata.warnings if "(C7510)" not in w or "at a function call" not in w]
        assert other == [] and (compiled.metadata.warnings == [] or name == "matmul"), name


def test_the_text_round_trips() -> None:
    kernel, _, args, constants = cases()["matrix"]
    text = kernel.compile(signature(kernel, args), constants, assembled=False).asm["ptx"]
    assert text.count(".extern .func (.param .b32 count) vprintf") == 1
    once = print_module(parse(text))
    assert print_module(parse(once)) == once


def test_a_loop_that_prints_keeps_no_product_in_flight() -> None:
    def waits(each: bool) -> set[str]:
        types = {"a": "*f16:16", "b": "*f16:16", "out": "*f32:16", "K": "i32:16"}
        constants = {"BLOCK": 32, "EACH": each}
        text = print_while_multiplying.compile(types, constants, target="sm_90a", assembled=False, num_stages=4).asm[
            "ptx"
        ]
        return {line.strip() for line in text.splitlines() if "wgmma.wait_group" in line}

    assert waits(True) == {"wgmma.wait_group.sync.aligned 0;"}
    assert "wgmma.wait_group.sync.aligned 1;" in waits(False)  # else the test above shows nothing


def assert_case(bad: int) -> tuple[Any, tuple[int, ...], list[Any], dict[str, Any]]:
    x = np.arange(1, 301, dtype=np.float32)
    x[bad] = -3
    return check_positive, (1,), [x, np.zeros_like(x), 300], {"B": 512}


def test_an_assertion_says_where_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SimulationError, match="trap was executed"):
        run_text(assert_case(211), "sm_90a", debug=True)
    (line,) = capsys.readouterr().out.splitlines()
    place, _, rest = line.partition(": ")
    assert rest == "assertion failed: 100% positive, pid (0, 0, 0), idx (211)"
    assert place.rpartition(":")[0].endswith("print_kernels.py")
    with pytest.raises(TileError, match=r"100% positive \(element \[211\]\)"):
        kernel, grid, args, constants = assert_case(211)
        kernel[grid](*args, **constants)


def test_an_assertion_that_holds_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    case = assert_case(299)
    case[2][0][299] = 5
    assert run_text(case, "sm_80", debug=True).printed == []
    assert (case[2][1] == case[2][0]).all()


def test_assertions_need_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    def text(**options: Any) -> Any:
        kernel, _, args, constants = assert_case(0)
        return kernel.compile(signature(kernel, args), constants, assembled=False, **options).asm["ptx"]

    monkeypatch.delenv("MIMW_DEBUG", raising=False)
    assert "trap" not in text() and "vprintf" not in text()
    monkeypatch.setenv("MIMW_DEBUG", "1")
    assert "trap" in text()
    assert "trap" not in text(debug=False)


def test_a_kernel_that_prints_nothing_declares_nothing() -> None:
    types = {"a": "*f16", "b": "*f16", "out": "*f32", "K": "i32"}
    text = print_while_multiplying.compile(types, {"BLOCK": 32, "EACH": False}, assembled=False).asm["ptx"]
    assert "vprintf" not in text and ".local" not in text


def test_a_combine_function_cannot_print() -> None:
    types, options = {"x": "*f32", "out": "*f32"}, {"assembled": False, "debug": True}
    for loud in (print_add, assert_add):
        with pytest.raises(CompilationError, match="combine function of a reduction") as caught:
            reduce_with.compile(types, {"ADD": loud}, **options)
        assert caught.value.code == "unsupported" and caught.value.loc.file.endswith("print_kernels.py")


def test_a_pointer_prints_as_its_address(capsys: pytest.CaptureFixture[str]) -> None:
    import mimw
    import mimw.language as ml

    @mimw.kernel
    def k(x):
        ml.device_print("at", x + 4)

    text = k.compile({"x": "*f32"}, assembled=False).asm["ptx"]
    (line,) = run_ptx(text, None, (1, 1, 1), [0x1234567890]).printed
    assert line == "pid (0, 0, 0) idx () at 0x00000012345678a0"
