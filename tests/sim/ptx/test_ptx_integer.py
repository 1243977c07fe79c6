"""Integer, logic, bit-field and move instructions against Python integers."""

from __future__ import annotations

import numpy as np
import pytest

from .programs import apply

EDGE = [0, 1, 2, 3, 7, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFFFFFE, 0x12345678, 0xDEADBEEF]


def words(seed: int, count: int = 96) -> np.ndarray:
    rng = np.random.default_rng(seed)
    out = rng.integers(0, 2**32, count, dtype=np.uint32)
    out[: len(EDGE)] = rng.permutation(EDGE)
    return out


def longs(seed: int, count: int = 96) -> np.ndarray:
    rng = np.random.default_rng(seed)
    out = rng.integers(0, 2**64, count, dtype=np.uint64)
    out[:6] = [0, 1, 2**63, 2**63 - 1, 2**64 - 1, 2**32]
    return rng.permutation(out)


def signed(v: int, bits: int) -> int:
    v &= (1 << bits) - 1
    return v - (1 << bits) if v >> (bits - 1) else v


def truncated(a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return -1 if b == 0 else a - truncated(a, b) * b


BINARY = {
    "add.{k}": lambda a, b: a + b,
    "sub.{k}": lambda a, b: a - b,
    "mul.lo.{k}": lambda a, b: a * b,
    "div.{k}": truncated,
    "rem.{k}": remainder,
    "min.{k}": min,
    "max.{k}": max,
}


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("form", BINARY)
def test_arithmetic(form: str, kind: str) -> None:
    bits = int(kind[1:])
    make = words if bits == 32 else longs
    a, b = make(1), make(2)
    got = apply(form.format(k=kind) + " {o}, {0}, {1};", a, b, out=a.dtype)
    for x, y, z in zip(a.tolist(), b.tolist(), got.tolist(), strict=False):
        if kind[0] == "s":
            x, y = signed(x, bits), signed(y, bits)
        assert z == BINARY[form](x, y) & ((1 << bits) - 1), (form, kind, x, y)


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64", "s16", "u16"])
def test_mul_high_and_wide(kind: str) -> None:
    bits = int(kind[1:])
    a, b = (longs(3), longs(4)) if bits == 64 else (words(3), words(4))
    if bits == 16:
        a, b = a.astype(np.uint16), b.astype(np.uint16)
    convert = (lambda v: signed(v, bits)) if kind[0] == "s" else (lambda v: v)
    got = apply(f"mul.hi.{kind} {{o}}, {{0}}, {{1}};", a, b, out=a.dtype)
    for x, y, z in zip(a.tolist(), b.tolist(), got.tolist(), strict=False):
        assert z == (convert(x) * convert(y) >> bits) & ((1 << bits) - 1)
    if bits < 64:
        wide = np.uint32 if bits == 16 else np.uint64
        got = apply(f"mul.wide.{kind} {{o}}, {{0}}, {{1}};", a, b, out=wide)
        for x, y, z in zip(a.tolist(), b.tolist(), got.tolist(), strict=False):
            assert z == (convert(x) * convert(y)) & ((1 << 2 * bits) - 1)


def test_carry_chain_adds_128_bits() -> None:
    a, b, c, d = longs(5), longs(6), longs(7), longs(8)
    for opcode, sign in (("add", 1), ("sub", -1)):
        low = apply(f"{opcode}.cc.u64 {{o}}, {{0}}, {{2}};", a, b, c, d, out=np.uint64)
        high = apply(
            f"{opcode}.cc.u64 d50, {{0}}, {{2}}; {opcode}c.u64 {{o}}, {{1}}, {{3}};", a, b, c, d, out=np.uint64
        )
        for w, x, y, z, lo, hi in zip(*(v.tolist() for v in (a, b, c, d, low, high)), strict=False):
            want = ((x << 64 | w) + sign * (z << 64 | y)) % 2**128
            assert (hi << 64 | lo) == want


@pytest.mark.parametrize("kind", ["b32", "b64", "s32", "u32", "s64", "u64"])
def test_shifts_clamp(kind: str) -> None:
    bits = int(kind[1:])
    a = words(9) if bits == 32 else longs(9)
    n = np.random.default_rng(1).integers(0, 80, len(a)).astype(np.uint32)
    n[:3] = [bits, bits - 1, 0xFFFFFFFF]
    if kind[0] == "b":
        got = apply(f"shl.{kind} {{o}}, {{0}}, {{1}};", a, n, out=a.dtype)
        assert got.tolist() == [
            (x << y) & ((1 << bits) - 1) if y < bits else 0 for x, y in zip(a.tolist(), n.tolist(), strict=False)
        ]
    got = apply(f"shr.{kind} {{o}}, {{0}}, {{1}};", a, n, out=a.dtype)
    for x, y, z in zip(a.tolist(), n.tolist(), got.tolist(), strict=False):
        x = signed(x, bits) if kind[0] == "s" else x
        assert z == (x >> min(y, 100)) & ((1 << bits) - 1)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_field_extract(kind: str) -> None:
    bits = int(kind[1:])
    a = words(10) if bits == 32 else longs(10)
    rng = np.random.default_rng(2)
    pos, length = (rng.integers(0, 70, len(a)).astype(np.uint32) for _ in range(2))
    got = apply(f"bfe.{kind} {{o}}, {{0}}, {{1}}, {{2}};", a, pos, length, out=a.dtype)
    for x, p, n, z in zip(a.tolist(), pos.tolist(), length.tolist(), got.tolist(), strict=False):
        # The ISA's pseudo code, bit by bit.
        sign = 0 if kind[0] == "u" or n == 0 else x >> min(p + n - 1, bits - 1) & 1
        want = sum((x >> p + i & 1 if i < n and p + i < bits else sign) << i for i in range(bits))
        assert z == want, (hex(x), p, n)


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_field_insert(bits: int) -> None:
    a, b = (words(11), words(12)) if bits == 32 else (longs(11), longs(12))
    rng = np.random.default_rng(3)
    pos, length = (rng.integers(0, 70, len(a)).astype(np.uint32) for _ in range(2))
    got = apply(f"bfi.b{bits} {{o}}, {{0}}, {{1}}, {{2}}, {{3}};", a, b, pos, length, out=a.dtype)
    for x, y, p, n, z in zip(a.tolist(), b.tolist(), pos.tolist(), length.tolist(), got.tolist(), strict=False):
        want = y
        for i in range(n):
            if p + i < bits:
                want = want & ~(1 << p + i) | (x >> i & 1) << p + i
        assert z == want


def test_counts() -> None:
    for a, bits in ((words(13), 32), (longs(13), 64)):
        assert apply(f"popc.b{bits} {{o}}, {{0}};", a, out=np.uint32).tolist() == [x.bit_count() for x in a.tolist()]
        assert apply(f"clz.b{bits} {{o}}, {{0}};", a, out=np.uint32).tolist() == [
            bits - x.bit_length() for x in a.tolist()
        ]
        want = [int(f"{x:0{bits}b}"[::-1], 2) for x in a.tolist()]
        assert apply(f"brev.b{bits} {{o}}, {{0}};", a, out=a.dtype).tolist() == want
        want = [(x.bit_length() - 1) & 0xFFFFFFFF for x in a.tolist()]
        assert apply(f"bfind.u{bits} {{o}}, {{0}};", a, out=np.uint32).tolist() == want


@pytest.mark.parametrize("table", [0x00, 0x96, 0xE8, 0xCA, 0xF0, 0x1B, 0xFF])
def test_lop3(table: int) -> None:
    a, b, c = words(14), words(15), words(16)
    got = apply(f"lop3.b32 {{o}}, {{0}}, {{1}}, {{2}}, {table};", a, b, c, out=np.uint32)
    for x, y, z, w in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=False):
        want = sum((table >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | z >> i & 1) & 1) << i for i in range(32))
        assert w == want


def test_prmt_and_modes() -> None:
    a, b, sel = words(17), words(18), words(19)
    got = apply("prmt.b32 {o}, {0}, {1}, {2};", a, b, sel, out=np.uint32)
    for x, y, s, z in zip(a.tolist(), b.tolist(), sel.tolist(), got.tolist(), strict=False):
        data = (y << 32 | x).to_bytes(8, "little")
        want = 0
        for i in range(4):
            nibble = s >> 4 * i & 15
            byte = data[nibble & 7]
            want |= ((0xFF if byte & 0x80 else 0) if nibble & 8 else byte) << 8 * i
        assert z == want
    x, y, one = np.full(4, 0x33221100, np.uint32), np.full(4, 0x77665544, np.uint32), np.arange(4, dtype=np.uint32)
    assert apply("prmt.b32.f4e {o}, {0}, {1}, {2};", x, y, one, out=np.uint32)[1] == 0x44332211
    assert apply("prmt.b32.b4e {o}, {0}, {1}, {2};", x, y, one, out=np.uint32)[1] == 0x66770011
    assert apply("prmt.b32.rc8 {o}, {0}, {1}, {2};", x, y, one, out=np.uint32)[2] == 0x22222222
    assert apply("prmt.b32.ecl {o}, {0}, {1}, {2};", x, y, one, out=np.uint32)[2] == 0x33222222
    assert apply("prmt.b32.ecr {o}, {0}, {1}, {2};", x, y, one, out=np.uint32)[1] == 0x11111100
    assert apply("prmt.b32.rc16 {o}, {0}, {1}, {2};", x, y, one, out=np.uint32)[3] == 0x33223322


def test_funnel_shift() -> None:
    a, b = words(20), words(21)
    n = np.arange(len(a), dtype=np.uint32)
    for form, fn in {
        "shf.l.wrap.b32": lambda v, k: v << (k & 31) >> 32,
        "shf.r.wrap.b32": lambda v, k: v >> (k & 31),
        "shf.l.clamp.b32": lambda v, k: v << min(k, 32) >> 32,
        "shf.r.clamp.b32": lambda v, k: v >> min(k, 32),
    }.items():
        got = apply(form + " {o}, {0}, {1}, {2};", a, b, n, out=np.uint32)
        want = [fn(y << 32 | x, k) & 0xFFFFFFFF for x, y, k in zip(a.tolist(), b.tolist(), n.tolist(), strict=False)]
        assert got.tolist() == want, form


def test_dot_products_of_bytes() -> None:
    a, b, c = words(22), words(23), words(24)
    got = apply("dp4a.s32.u32 {o}, {0}, {1}, {2};", a, b, c, out=np.uint32)
    for x, y, z, w in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=False):
        total = z + sum(signed(x >> 8 * i, 8) * (y >> 8 * i & 255) for i in range(4))
        assert w == total & 0xFFFFFFFF


def test_pack_and_unpack() -> None:
    a, b = words(25), words(26)
    got = apply("mov.b64 {o}, {{{0}, {1}}};", a, b, out=np.uint64)
    assert (got == (b.astype(np.uint64) << np.uint64(32) | a)).all()
    got = apply("mov.b32 {{_, {o}}}, {0};", a, out=np.uint16)
    assert (got == (a >> 16)).all()


def test_select_and_compare() -> None:
    a, b = words(27), words(28)
    p = np.random.default_rng(5).integers(0, 2, len(a)).astype(np.bool_)
    assert (apply("selp.b32 {o}, {0}, {1}, {2};", a, b, p, out=np.uint32) == np.where(p, a, b)).all()
    assert (apply("setp.lt.s32 {o}, {0}, {1};", a, b, out=np.bool_) == (a.view(np.int32) < b.view(np.int32))).all()
    assert (apply("setp.hi.u32 {o}, {0}, {1};", a, b, out=np.bool_) == (a > b)).all()
    got = apply("setp.lt.and.s32 {o}|p38, {0}, {1}, {2};", a, b, p, out=np.bool_)
    assert (got == ((a.view(np.int32) < b.view(np.int32)) & p)).all()
    got = apply("setp.lt.or.s32 p38|{o}, {0}, {1}, !{2};", a, b, p, out=np.bool_)
    assert (got == (~(a.view(np.int32) < b.view(np.int32)) | ~p)).all()
    assert (apply("set.eq.u32.u32 {o}, {0}, 7;", a, out=np.uint32) == np.where(a == 7, 0xFFFFFFFF, 0)).all()
    assert (
        apply("slct.b32.s32 {o}, {0}, {1}, {1};", a, b, out=np.uint32) == np.where(b.view(np.int32) >= 0, a, b)
    ).all()


def test_packed_halfwords() -> None:
    a, b = words(29), words(30)
    pair = lambda v, t: v.view(t).reshape(-1, 2)  # noqa: E731
    got = apply("add.u16x2 {o}, {0}, {1};", a, b, out=np.uint32)
    assert (pair(got, np.uint16) == pair(a, np.uint16) + pair(b, np.uint16)).all()
    got = apply("max.s16x2 {o}, {0}, {1};", a, b, out=np.uint32)
    assert (pair(got, np.int16) == np.maximum(pair(a, np.int16), pair(b, np.int16))).all()
