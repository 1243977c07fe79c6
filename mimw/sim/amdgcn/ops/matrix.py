# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Matrix instructions: v_mfma for every shape and type, the scaled and mixed 8/6/4-bit forms of CDNA4, and v_smfmac.

Layouts by formula (ISA chapter "Matrix arithmetic instructions"; AMD's matrix instruction calculator). With B blocks of
M x N x K and L = 64 / (M B) lane groups along K: lane l holds row l % M of A (column of B), group l / M of K, and K / L
consecutive elements. Of the result, stacked over blocks, register r of lane l is row 4 (64/N) (r/4) + 4 (l/N) + r % 4,
column l % N; f64 has one row instead of four. EXEC is ignored. Sums are made in float64 and rounded once, where the
hardware's order and intermediate rounding are not documented: compare with a tolerance.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from mimw.sim.amdgcn.formats import decode, kind_on
from mimw.sim.amdgcn.operands import Getter, Operands
from mimw.sim.amdgcn.ops.lds_access import split_bits
from mimw.sim.amdgcn.registry import Step, family
from mimw.sim.amdgcn.state import LANES, Array, Ctx
from mimw.sim.ptx.floats import Format, round_to

_U32 = np.uint32
_BITS = {
    "f64": 64,
    "f32": 32,
    "xf32": 32,
    "f16": 16,
    "bf16": 16,
    "i8": 8,
    "fp8": 8,
    "bf8": 8,
    "fp6": 6,
    "bf6": 6,
    "fp4": 4,
}
_F8F6F4 = ("fp8", "bf8", "fp6", "bf6", "fp4")
_XF32 = Format("xf32", 32, 11, -126, float.fromhex("0x1.ffcp127"))
Unpack = Callable[[Array], Array]


def unpacker(arch: str, kind: str) -> Unpack:
    """(..., words) uint32 to (..., elements) as float64."""
    if kind == "f32":
        return lambda w: np.ascontiguousarray(w).view(np.float32).astype(np.float64)
    if kind == "xf32":
        return lambda w: round_to(np.ascontiguousarray(w).view(np.float32).astype(np.float64), _XF32, "rn")
    if kind == "f64":
        return lambda w: np.ascontiguousarray(w).view(np.float64)
    if kind == "f16":
        return lambda w: np.ascontiguousarray(w).view(np.float16).astype(np.float64)
    if kind == "bf16":
        return lambda w: (
            (np.ascontiguousarray(w).view(np.uint16).astype(_U32) << _U32(16)).view(np.float32).astype(np.float64)
        )
    if kind == "i8":
        return lambda w: np.ascontiguousarray(w).view(np.int8).astype(np.float64)
    name, bits = kind_on(arch, kind), _BITS[kind]
    return lambda w: decode(name, split_bits(w, bits))


class Tile:
    """The shape of an instruction: M x N x K, `blocks` of it, and how lanes hold it."""

    __slots__ = ("blocks", "k", "m", "n", "wide")

    def __init__(self, m: int, n: int, k: int, blocks: int, wide: bool) -> None:
        self.m, self.n, self.k, self.blocks, self.wide = m, n, k, blocks, wide

    @property
    def per_lane(self) -> int:
        """Elements of A (and of B) in a lane."""
        return self.m * self.k * self.blocks // LANES

    @property
    def results(self) -> int:
        """Elements of the result in a lane."""
        return self.m * self.n * self.blocks // LANES

    def gather(self, lanes: Array, rows: int) -> Array:
        """(waves, 64, per lane) to (waves, blocks, rows, K)."""
        count, per = len(lanes), lanes.shape[-1]
        if self.wide and self.blocks > 1:
            # f64 4x4x4: the groups of K lie outside the blocks.
            split = lanes.reshape(count, -1, self.blocks, rows, per)
            return split.transpose(0, 2, 3, 1, 4).reshape(count, self.blocks, rows, -1)
        split = lanes.reshape(count, self.blocks, -1, rows, per)
        return split.transpose(0, 1, 3, 2, 4).reshape(count, self.blocks, rows, -1)

    def scatter(self, product: Array) -> Array:
        """(waves, blocks, M, N) to (results, waves, 64)."""
        count, groups = len(product), LANES // self.n
        if self.wide and self.blocks > 1:
            return product.transpose(0, 2, 1, 3).reshape(1, count, LANES)
        height = 1 if self.wide else 4
        split = product.reshape(count, -1, groups, height, self.n)
        return split.transpose(1, 3, 0, 2, 4).reshape(-1, count, LANES)


def _lanes(words: Array, count: int, unpack: Unpack) -> Array:
    """(words, n, 64) to (n, 64, elements)."""
    full = np.broadcast_to(words, (len(words), count, LANES))
    return unpack(np.ascontiguousarray(np.moveaxis(full, 0, -1)))


_GROUPS = {1: [0, 1, 0, 1], 2: [2, 3, 2, 3], 3: [1, 2, 3, 0], 4: [0] * 4, 5: [1] * 4, 6: [2] * 4, 7: [3] * 4}


def _permuted(lanes: Array, blgp: int) -> Array:
    """B's lanes in groups of 16 as the blgp modifier orders them."""
    if not blgp:
        return lanes
    groups = lanes.reshape(len(lanes), 4, 16, -1)[:, _GROUPS[blgp]]
    return groups.reshape(lanes.shape)


def _broadcast(a: Array, cbsz: int, abid: int) -> Array:
    """A's blocks: within each 2^cbsz neighbours all use block `abid` of them."""
    if not cbsz:
        return a
    size = 1 << cbsz
    return a[:, np.arange(a.shape[1]) // size * size + abid]


@family(
    r"v_mfma_(f32|i32|f64)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?(f64|f32|xf32|f16|bf16|bf16_1k|i8|(?:fp8|bf8)_(?:fp8|bf8))"
)
def _mfma(d: Operands, match: re.Match[str]) -> Step:
    result, kinds = match[1], match[6].removesuffix("_1k").split("_")
    m, n, k, blocks = int(match[2]), int(match[3]), int(match[4]), int(match[5] or 1)
    tile = Tile(m, n, k, blocks, result == "f64")
    inst = d.inst
    cbsz, abid, blgp = inst.number("cbsz"), inst.number("abid"), inst.number("blgp")
    signs = inst.bits("neg", 3, 0) if result == "f64" else [0, 0, 0]
    if result == "f64":
        signs, blgp = [s | blgp >> i & 1 for i, s in enumerate(signs)], 0
    a, b = (_source(d, i + 1, kinds[min(i, len(kinds) - 1)], tile) for i in (0, 1))

    def product(x: Ctx) -> Array:
        left, right = a(x), _permuted(b(x), blgp)
        left = -left if signs[0] else left
        right = -right if signs[1] else right
        return _broadcast(tile.gather(left, m), cbsz, abid) @ tile.gather(right, n).swapaxes(-1, -2)

    return _accumulate(d, result, tile, product, bool(signs[2]))


def _source(d: Operands, index: int, kind: str, tile: Tile) -> Getter:
    """A or B as (n, 64, per lane) float64."""
    get = d.words(d.op(index), tile.per_lane * _BITS[kind] // 32, all_lanes=True)
    unpack = unpacker(d.sim.arch, kind)
    return lambda x: _lanes(get(x), x.n, unpack)


def _accumulate(d: Operands, result: str, tile: Tile, product: Callable[[Ctx], Array], negate: bool = False) -> Step:
    """D = product + C, in the lanes' layout; C may be a constant."""
    count, per = tile.results, 2 if result == "f64" else 1
    get_c = d.words(d.op(3), count * per, all_lanes=True)
    slot, m = d.vector_slot(0), d.m
    d.writes.update(range(slot, slot + count * per))

    def run(x: Ctx) -> None:
        total = tile.scatter(product(x))
        c = np.broadcast_to(get_c(x), (count * per, x.n, LANES))
        if result == "i32":
            out = (total.astype(np.int64) + np.ascontiguousarray(c).view(np.int32)).astype(np.int32).view(_U32)
        elif result == "f32":
            addend = np.ascontiguousarray(c).view(np.float32)
            out = (total + (-addend if negate else addend)).astype(np.float32).view(_U32)
        else:
            addend = _pairs(c)
            wide = np.ascontiguousarray(total + (-addend if negate else addend)).view(np.uint64)
            out = np.stack([wide.astype(_U32), (wide >> np.uint64(32)).astype(_U32)], 1).reshape(count * 2, x.n, LANES)
        m.write_all_lanes(x, slot, out)

    return run


def _pairs(words: Array) -> Array:
    """(2 r, n, 64) words as (r, n, 64) float64."""
    low, high = words[0::2].astype(np.uint64), words[1::2].astype(np.uint64)
    return (low | high << np.uint64(32)).view(np.float64)


# --- 8, 6 and 4 bits, with and without scales (CDNA4)


@family(r"v_mfma_(scale_)?f32_(16|32)x(?:16|32)x(64|128)_f8f6f4")
def _f8f6f4(d: Operands, match: re.Match[str]) -> Step:
    """cbsz and blgp name the types of A and B. A scale is 2^(byte - 127), for 32 consecutive elements of K: lane l has the
    one of row l % M and the l / M-th 32 elements.

    Of 8-bit types a lane holds two runs of 16 elements, one in each half of K; of narrower ones one run of 32. (Checked
    with the code that Triton emits for scaled products.)
    """
    size, k = int(match[2]), int(match[3])
    tile = Tile(size, size, k, 1, False)
    kinds = [_F8F6F4[d.inst.number(name)] for name in ("cbsz", "blgp")]
    a, b = (_source(d, i + 1, kind, tile) for i, kind in enumerate(kinds))
    scales = [_scale(d, i, tile) for i in (0, 1)] if match[1] else None

    runs = [2 if _BITS[kind] == 8 else 1 for kind in kinds]

    def product(x: Ctx) -> Array:
        left, right = (_ordered(tile, get(x), size, run) for get, run in zip((a, b), runs, strict=True))
        if scales is not None:
            left, right = (side * scale(x) for side, scale in zip((left, right), scales, strict=True))
        return left @ right.swapaxes(-1, -2)

    return _accumulate(d, "f32", tile, product)


def _ordered(tile: Tile, lanes: Array, rows: int, runs: int) -> Array:
    """(waves, 64, per lane) to (waves, 1, rows, K), where a lane's elements are `runs` runs of K."""
    if runs == 1:
        return tile.gather(lanes, rows)
    return np.concatenate([tile.gather(part, rows) for part in np.split(lanes, runs, axis=-1)], axis=-1)


def _scale(d: Operands, side: int, tile: Tile) -> Getter:
    """The factors (waves, 1, rows, K) of a side; op_sel and op_sel_hi pick the byte."""
    get = d.words(d.op(4 + side), 1, all_lanes=True)
    byte = d.inst.bits("op_sel", 2, 0)[side] + 2 * d.inst.bits("op_sel_hi", 2, 0)[side]
    shift = _U32(8 * byte)

    def run(x: Ctx) -> Array:
        words = np.broadcast_to(get(x)[0], (x.n, LANES))
        factors = decode("e8m0", (words >> shift) & _U32(0xFF)).reshape(x.n, 1, -1, tile.m)
        return np.repeat(factors.swapaxes(-1, -2), 32, axis=-1)

    return run


# --- structured sparsity


@family(r"v_smfmac_(f32|i32)_(\d+)x(\d+)x(\d+)_?(f16|bf16|i8|(?:fp8|bf8)_(?:fp8|bf8))")
def _smfmac(d: Operands, match: re.Match[str]) -> Step:
    """D += A B, A with two of every four elements of K: a 2-bit place for each element kept, in an index register.

    cbsz 0: abid picks the part of the index register; else its lowest part is used.
    """
    result, kinds = match[1], match[5].split("_")
    m, n, k = int(match[2]), int(match[3]), int(match[4])
    dense, sparse = Tile(m, n, k, 1, False), Tile(m, n, k // 2, 1, False)
    a, b = _source(d, 1, kinds[0], sparse), _source(d, 2, kinds[-1], dense)
    index = d.words(d.op(3), 1, all_lanes=True)
    per, abid = sparse.per_lane, 0 if d.inst.number("cbsz") else d.inst.number("abid")
    shifts = (2 * np.arange(per) + 2 * per * abid).astype(_U32)
    slot, mach = d.vector_slot(0), d.m
    d.writes.update(range(slot, slot + dense.results))
    d.reads.update(range(slot, slot + dense.results))

    def run(x: Ctx) -> None:
        places = (np.broadcast_to(index(x)[0], (x.n, LANES))[..., None] >> shifts) & _U32(3)
        spread = np.zeros((x.n, LANES, 2 * per))
        np.put_along_axis(spread, np.arange(per) // 2 * 4 + places.astype(np.int64), a(x), axis=2)
        total = dense.scatter(dense.gather(spread, m) @ dense.gather(b(x), n).swapaxes(-1, -2))
        old = np.ascontiguousarray(mach.read_all_lanes(x, slot, dense.results))
        if result == "i32":
            out = (total.astype(np.int64) + old.view(np.int32)).astype(np.int32).view(_U32)
        else:
            out = (total + old.view(np.float32)).astype(np.float32).view(_U32)
        mach.write_all_lanes(x, slot, out)

    return run
