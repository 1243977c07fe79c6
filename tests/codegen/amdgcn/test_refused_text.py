"""What LLVM refuses of a kernel's text is told at the Python line that it comes from, whichever way the kernel is compiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mimw
import mimw.compiler
import mimw.language as ml
from mimw.codegen.amdgcn.binary.assemble import AssemblerError
from mimw.runtime import driver_api, hip_api
from mimw.tools.main import main
from tests.runtime.fake_cuda import Tensor
from tests.runtime.fake_hip import FakeHip


@mimw.kernel
def doubled(x_ptr, out_ptr):
    at = ml.arange(0, 256)
    x = ml.load(x_ptr + at)
    ml.store(out_ptr + at, x * 2.0)


LINE = doubled.fn.__code__.co_firstlineno + 4
SOURCE = "ml.store(out_ptr + at, x * 2.0)"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every product of the text is misspelt."""
    real = mimw.compiler.print_with_places

    def misspelt(module: Any) -> Any:
        text, places = real(module)
        assert "v_mul_f32" in text or "v_add_f32" in text or "v_pk_mul_f32" in text
        for name in ("v_mul_f32", "v_add_f32", "v_pk_mul_f32"):
            text = text.replace(name, "v_bogus_f32")
        return text, places

    monkeypatch.setattr(mimw.compiler, "print_with_places", misspelt)
    yield


def told_well(error: AssemblerError) -> bool:
    text = str(error)
    return (
        (error.loc is not None and (error.loc.file, error.loc.line) == (__file__, LINE))
        and f"{__file__}:{LINE}:" in text
        and f"    {SOURCE}\n" in text
        and "invalid instruction" in text
        and "v_bogus_f32" in text
    )


def test_compiled_ahead(broken: None) -> None:
    with pytest.raises(AssemblerError) as caught:
        doubled.compile(["*f32:16", "*f32:16"], target="gfx942")
    assert told_well(caught.value)


def test_at_a_launch(broken: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(driver_api, "_probe", False)
    monkeypatch.setenv("MIMW_CACHE_DIR", str(tmp_path))
    hip_api.use_library(FakeHip())
    try:
        with pytest.raises(AssemblerError) as caught:
            doubled[(1,)](Tensor(4096), Tensor(8192))
    finally:
        hip_api.use_library(None)
    assert told_well(caught.value)


def test_inspected(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["inspect", f"{__file__}:doubled", "--target", "gfx942", "--signature", "*f32:16,*f32:16"]
    assert main([*where, "--stage", "sass"]) != 0
    told = capsys.readouterr()
    assert f"{__file__}:{LINE}:" in told.out + told.err and SOURCE in told.out + told.err


def test_what_was_assembled_keeps_no_table_of_lines() -> None:
    kernel = doubled.compile(["*f32:16", "*f32:16"], target="gfx942")
    assert "amdgcn_lines" not in kernel.metadata.extra
