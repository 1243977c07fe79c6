"""Tiles that no machine holds are refused at their line, before any text is made."""

from __future__ import annotations

import pytest

import mimw
import mimw.language as ml


@mimw.kernel
def copy(x_ptr, out_ptr, n, BLOCK: ml.constexpr):
    i = ml.arange(0, BLOCK)
    ml.store(out_ptr + i, ml.load(x_ptr + i, mask=i < n), mask=i < n)


def test_a_million_elements_on_four_warps_are_refused_at_the_load() -> None:
    with pytest.raises(mimw.CompilationError) as caught:
        copy.compile(["*f32:16", "*f32:16", "i32"], {"BLOCK": 1 << 20})
    error = caught.value
    assert error.code == "tile-too-large"
    assert "8192 registers of each of 128 threads" in error.message
    assert error.loc.line == copy.fn.__code__.co_firstlineno + 3
    assert error.hint is not None and "num_warps" in error.hint


def test_what_fits_compiles() -> None:
    assert copy.compile(["*f32:16", "*f32:16", "i32"], {"BLOCK": 1 << 13}).metadata.spill_bytes == 0
