"""Inline PTX: both simulators agree, elements lie together as `pack` says, texts that do not fit are refused where they stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import CompilationError
from tests.language.engines_kit import both, compile_for, run_text

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
def any_registers(x, y, TEXT: ml.constexpr, LETTERS: ml.constexpr, PACK: ml.constexpr, N: ml.constexpr):
    at = ml.arange(0, N)
    v = ml.load(x + at)
    ml.store(y + at, ml.inline_asm_elementwise(TEXT, LETTERS, [v], v.dtype, True, PACK))


@pytest.mark.parametrize(
    ("dtype", "text", "letters", "pack", "want"),
    [
        (np.int8, "xor.b16 $0, $1, 257;", "=h,h", 2, lambda x: x ^ 1),
        (np.uint8, "not.b64 $0, $1;", "=l,l", 8, lambda x: ~x),
        (np.uint8, "not.b64 $0, $2; not.b64 $1, $3;", "=l,=l,l,l", 16, lambda x: ~x),
        (np.int16, "not.b64 $0, $1;", "=l,l", 4, lambda x: ~x),
        (np.int32, "not.b64 $0, $1;", "=l,l", 2, lambda x: ~x),
        (np.float32, "mov.b64 $0, $1;", "=d,d", 2, lambda x: x),
        (np.float16, "mov.b32 $0, $1;", "=f,f", 2, lambda x: x),
        (np.int64, "add.s64 $0, $1, 5;", "=l,l", 1, lambda x: x + 5),
    ],
)
def test_elements_in_any_registers(dtype: Any, text: str, letters: str, pack: int, want: Any) -> None:
    x = np.arange(-32, 32).astype(dtype)
    for n in (64, 37):
        got = both(any_registers, (1,), [x, x * 0], TARGETS, TEXT=text, LETTERS=letters, PACK=pack, N=n)
        np.testing.assert_array_equal(got[1][:n], want(x)[:n])


@mimw.kernel
def alternating(y, z, n, N: ml.constexpr):
    at = ml.arange(0, N)
    same = ml.full((N,), n, ml.int32)
    v, wide = ml.inline_asm_elementwise(
        "mov.b32 $0, 0; mov.b32 $1, 1; cvt.s64.s32 $2, $4; cvt.s64.s32 $3, $5;",
        "=r,=r,=l,=l,r,r",
        [same],
        dtype=(ml.int32, ml.int64),
        is_pure=True,
        pack=2,
    )
    ml.store(y + at, 1, mask=v > 0)
    ml.store(z + at, wide)


def test_results_differ_where_operands_do_not() -> None:
    """Half of the elements are set, whichever they are: a mask of them is not one for neighbours. Results have types of their own."""
    args = [np.zeros(256, np.int32), np.zeros(256, np.int64), 7]
    alternating[(1,)](*args, N=256)
    compiled = compile_for(alternating, args, {"N": 256}, "sm_90a")
    again = [np.zeros(256, np.int32), np.zeros(256, np.int64), 7]
    run_text(compiled, (1,), again)
    for y, z, _ in (args, again):
        assert y.sum() == 128 and (z == 7).all()


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
        ("add.s32 $0, $0, $1;", "=r,r", ml.int32, 1, "$0 is read before it is written"),
        ("mov.b32 $0, $1; }", "=r,r", ml.int32, 1, "it closes a brace that it did not open"),
        ("{ mov.b32 $0, $1; // }", "=r,r", ml.int32, 1, "it opens a brace that it does not close"),
        ("L: mov.b32 $0, $1; bra L;", "=r,r", ml.int32, 1, "labels, branches"),
        ("mov.b32 q, $1; mov.b32 $0, q;", "=r,r", ml.int32, 1, "q is not declared"),
        ("add.s32 $0, $1;", "=r,r", ml.int32, 1, "operands of add.s32 are (b32, b32)"),
        ("add.s32 5, $1, $1; mov.b32 $0, 1;", "=r,r", ml.int32, 1, "operands of add.s32 are (Imm, b32, b32)"),
        ("add.s32 $0, $1, $1;", "=f,f", ml.int32, 1, "operands of add.s32 are (f32, f32, f32)"),
        ("", "=r,r", ml.int32, 1, "nothing writes $0"),
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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("foo $0, $1;", "unknown instruction"),
        ("", "nothing writes"),
        ("add.s32 $0, $1;", "operands of add.s32"),
        ("ld.shared.b32 $0, [$1];", "ld.shared.b32 goes to memory"),
    ],
)
def test_the_simulator_refuses_too(text: str, says: str) -> None:
    with pytest.raises(CompilationError, match=says) as caught:
        refused[(1,)](np.zeros(32, np.int32), TEXT=text, CONSTRAINTS="=r,r", TYPE=ml.int32, PACK=1)
    assert "ml.inline_asm_elementwise" in str(caught.value)


def test_the_target_lacks_it() -> None:
    constants = {"TEXT": "redux.sync.add.s32 $0, $1, -1;", "CONSTRAINTS": "=r,r", "TYPE": ml.int32, "PACK": 1}
    refused.compile({"x": "*i32"}, constants, target="sm_80")
    constants["TEXT"] = "{ .reg .f32 a; cvt.rn.f32.s32 a, $1; cvt.rn.satfinite.e4m3x2.f32 $0, a, a; }"
    with pytest.raises(CompilationError, match="sm_80 has no cvt"):
        refused.compile({"x": "*i32"}, {**constants, "CONSTRAINTS": "=h,r", "TYPE": ml.int16}, target="sm_80")


def test_it_is_for_nvidia() -> None:
    constants = {"TEXT": "mov.b32 $0, $1;", "CONSTRAINTS": "=r,r", "TYPE": ml.int32, "PACK": 1}
    with pytest.raises(CompilationError, match="the text is PTX"):
        refused.compile({"x": "*i32"}, constants, target="gfx942")
