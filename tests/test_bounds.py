"""Integers whose range the code was compiled for: how signatures say it, which launches have it, what breaks it."""

from __future__ import annotations

from typing import Any

import pytest

import mimw
import mimw.language as ml
from mimw.ir.parser import parse_module
from mimw.ir.printer import print_module
from mimw.passes.facts import compute
from mimw.runtime.arguments import checked_value
from mimw.runtime.arrays import ScalarInfo
from mimw.runtime.convention import Param
from mimw.signature import SHORT, SHORTER, quick_key, with_bounds


@mimw.kernel
def scaled(x_ptr, n, s):
    ml.store(x_ptr + n * s, 1.0)


def compiled(*types: str, target: str = "gfx942") -> Any:
    return scaled.compile(["*f32:16", *types], target=target)


def test_a_signature_bounds_an_integer() -> None:
    kernel = compiled("i32:16<1024", "i32<7")
    params = {p.name: p for p in kernel.metadata.params}
    assert (params["n"].divisor, params["n"].below) == (16, 1024)
    assert (params["s"].divisor, params["s"].below) == (1, 7)
    assert Param.from_dict(params["n"].to_dict()).below == 1024


@pytest.mark.parametrize("text", ["*f32<4", "i32<", "i32<x", "i32<-1", "i32<4:16"])
def test_a_bound_that_is_none_is_refused(text: str) -> None:
    if text == "i32<":  # nothing said
        assert compiled(text, "i32").metadata.params[1].below == 0
        return
    with pytest.raises(mimw.LaunchError, match="cannot take the type"):
        scaled.compile(["*f32:16", text, "i32"], target="gfx942")


def test_tile_ir_keeps_the_bound_and_facts_know_it() -> None:
    text = str(compiled("i32:16<1024", "i32").asm["tile"])
    assert "%n: i32 {divisor = 16, below = 1024}" in text
    module = parse_module(text)
    assert print_module(module) == print_module(parse_module(print_module(module)))
    fact = compute(module.function).of(module.function.block.args[1])
    assert (fact.lo, fact.hi) == (0, 1023)


def test_small_integers_are_told_apart_for_amd() -> None:
    def key(n: int) -> Any:
        values = [None, n, 3]
        return with_bounds(scaled.specialise(values), values)

    assert key(16)[1] == ("s", "i32", True, SHORTER) and key(SHORTER)[1] == ("s", "i32", True, SHORT)
    assert key(SHORT)[1] == ("s", "i32", True) and key(-16)[1] == ("s", "i32", True)
    assert key(1 << 40)[1] == ("s", "i64", True) and key(1)[1] == ("c", "int", 1)
    assert scaled.signature(key(16), [None, 16, 3])["n"].below == SHORTER
    assert len({quick_key(scaled, (None, n, 3), {}) for n in (-16, 16, SHORTER, SHORT - 16)}) == 3


def test_a_launch_that_breaks_the_bound_is_refused() -> None:
    param = Param("n", "i32", 0, below=8)
    assert checked_value("k", param, ScalarInfo("i32", 7)) == 7
    for value in (8, -1):
        with pytest.raises(mimw.LaunchError, match="compiled for 0 to 7") as caught:
            checked_value("k", param, ScalarInfo("i32", value))
        assert caught.value.code == "launch-range"
