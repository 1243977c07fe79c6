"""Inline PTX: both simulators agree, elements lie together as `pack` says, texts that do not fit are refused where they stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import CompilationError
from tests.language.engines_kit import both

TARGETS = ("sm_90a", "sm_80")

TWO_RESULTS = """
    {
        .reg .b32 t;
        .reg .pred p;
        shr.b32 t, $2, 3;
        and.b32 t, t, $3;           // written again: a new register
        setp.gt.s32 p, t, 5;
        selp.b32 $0, t, $2, p;
        add.u32 $1, t, 1;
    }
"""


@mimw.kernel
def words(x, y, o, p, N: ml.constexpr):
    at = ml.arange(0, N)
    a, b = ml.load(x + at), ml.load(y + at)
    d, e = ml.inline_asm_elementwise(TWO_RESULTS, "=r,=r,r,r", [a, b], dtype=(ml.int32, ml.int32), is_pure=True, pack=1)
    ml.store(o + at, d)
    ml.store(p + at, e)


def test_two_results() -> None:
    x = np.arange(96, dtype=np.int32) * 7
    y = np.arange(96, dtype=np.int32)[::-1].copy()
    got = both(words, (1,), [x, y, x * 0, x * 0], TARGETS, N=96)
    t = (x >> 3) & y
    np.testing.assert_array_equal(got[2], np.where(t > 5, t, x))
    np.testing.assert_array_equal(got[3], t + 1)


@mimw.kernel
def packed(h, b, f, oh, ob, of, N: ml.constexpr):
    at = ml.arange(0, N)
    v = ml.load(h + at)
    ml.store(oh + at, ml.inline_asm_elementwise("add.rn.f16x2 $0, $1, $2;", "=r,r,r", [v, v], ml.float16, True, 2))
    ml.store(ob + at, ml.inline_asm_elementwise("not.b32 $0, $1;", "=r,r", [ml.load(b + at)], ml.int8, False, 4))
    w = ml.inline_asm_elementwise("fma.rn.f32 $0, $1, $2, $1;", "=f,f,f", [ml.load(f + at), 3.0], ml.float32, True, 1)
    r = ml.inline_asm_elementwise("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [w], ml.float16, True, 2)
    ml.store(of + at, r)


@pytest.mark.parametrize("n", [256, 100])
def test_elements_that_lie_together(n: int) -> None:
    h = np.linspace(-2, 2, n).astype(np.float16)
    b = (np.arange(n) - n // 2).astype(np.int8)
    f = np.linspace(-3, 3, n).astype(np.float32)
    got = both(packed, (1,), [h, b, f, h * 0, b * 0, h * 0], TARGETS, N=n)
    np.testing.assert_array_equal(got[3], h + h)
    np.testing.assert_array_equal(got[4], ~b)
    np.testing.assert_array_equal(got[5], (f * 4).astype(np.float16))


@mimw.kernel
def scalar(o):
    ml.store(
        o + ml.program_id(0), ml.inline_asm_elementwise("mov.u32 $0, 7;", "=r", [], ml.int32, is_pure=False, pack=1)
    )


def test_without_arguments() -> None:
    got = both(scalar, (2,), [np.zeros(2, np.int32)], TARGETS)
    np.testing.assert_array_equal(got[0], [7, 7])


@mimw.kernel
def unused(x, PURE: ml.constexpr):
    ml.inline_asm_elementwise("mov.u32 $0, 77;", "=r", [], ml.int32, PURE, 1)
    ml.store(x, 1)


def test_what_is_not_pure_stays() -> None:
    for pure in (True, False):
        text = unused.compile({"x": "*i32"}, {"PURE": pure}, target="sm_90a").asm["ptx"]
        assert (", 77;" in text) != pure


@mimw.kernel
def refused(x, TEXT: ml.constexpr, CONSTRAINTS: ml.constexpr, TYPE: ml.constexpr, PACK: ml.constexpr):
    at = ml.arange(0, 32)
    y = ml.inline_asm_elementwise(TEXT, CONSTRAINTS, [ml.load(x + at)], TYPE, True, PACK)
    ml.store(x + at, y)


@pytest.mark.parametrize(
    ("text", "constraints", "dtype", "pack", "says"),
    [
        ("foo.b32 $0, $1;", "=r,r", ml.int32, 1, "unknown instruction 'foo.b32'"),
        ("mov.b32 $0 $1;", "=r,r", ml.int32, 1, "expected ',', found"),
        ("mov.b32 $0, $2;", "=r,r", ml.int32, 1, "$2 of 2 operands"),
        ("mov.b32 $1, $1;", "=r,r", ml.int32, 1, "nothing writes $0"),
        ("{ .reg .b32 t; add.u32 $0, t, $1; }", "=r,r", ml.int32, 1, "is read before it is written"),
        ("{ .reg .pred p; setp.ne.b32 p, $1, 0; @p mov.b32 $0, $1; }", "=r,r", ml.int32, 1, "guarded instructions"),
        ("mov.b32 $0, $1;", "=r,h", ml.int32, 1, "an element of 32 bits does not fit into a register of 16 ('h')"),
        ("mov.b32 $0, $1;", "=r,r,r", ml.int32, 1, "there are more constraints than operands need"),
        ("mov.b32 $0, $1;", "=r", ml.int32, 1, "there are fewer constraints than operands need"),
        ("mov.b32 $0, $1;", "=r,x", ml.int32, 1, "the constraint 'x' is none of"),
        ("mov.b32 $0, $1;", "r,=r", ml.int32, 1, "outputs come before inputs"),
        ("mov.b32 $0, $1;", "=r,r", ml.int16, 1, "1 element of 16 bits do not fill registers of 32 ('r')"),
    ],
)
def test_texts_that_do_not_fit(text: str, constraints: str, dtype: Any, pack: int, says: str) -> None:
    constants = {"TEXT": text, "CONSTRAINTS": constraints, "TYPE": dtype, "PACK": pack}
    with pytest.raises(CompilationError) as caught:
        refused.compile({"x": "*i32"}, constants, target="sm_90a")
    assert caught.value.code == "inline-asm" and says in str(caught.value)
    assert "ml.inline_asm_elementwise" in str(caught.value)


def test_the_simulator_refuses_too() -> None:
    with pytest.raises(CompilationError, match="unknown instruction"):
        refused[(1,)](np.zeros(32, np.int32), TEXT="foo $0, $1;", CONSTRAINTS="=r,r", TYPE=ml.int32, PACK=1)


def test_it_is_for_nvidia() -> None:
    constants = {"TEXT": "mov.b32 $0, $1;", "CONSTRAINTS": "=r,r", "TYPE": ml.int32, "PACK": 1}
    with pytest.raises(CompilationError, match="the text is PTX"):
        refused.compile({"x": "*i32"}, constants, target="gfx942")
