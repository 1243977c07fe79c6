# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""DS instructions: LDS loads, stores and atomics, transposing loads (CDNA4), and permutations through the LDS crossbar."""

from __future__ import annotations

import re

import numpy as np

from mimw.sim.amdgcn.operands import Getter, Operands
from mimw.sim.amdgcn.ops.transfers import SHAPES, Shape, arriving, atomic_function, atomic_step, leaving, run_atomic
from mimw.sim.amdgcn.registry import Step, executes, family
from mimw.sim.amdgcn.state import LANES, Array, Ctx

_U32 = np.uint32


def _address(d: Operands, index: int) -> Getter:
    """The LDS address of each lane without the immediate offset, (n, 64) or (n, 1) int64."""
    get = d.bits32(d.op(index))
    return lambda x: get(x).astype(np.int64)


@family(r"ds_read_(u8|i8|u16|i16|b32|b64|b96|b128|[ui]8_d16|[ui]8_d16_hi|u16_d16|u16_d16_hi)")
def _read(d: Operands, match: re.Match[str]) -> Step:
    shape, sim, offset = SHAPES[match[1]], d.sim, d.inst.number("offset")
    address, put = _address(d, 1), arriving(d, 0, shape, "lds")
    return lambda x: put(x, sim.lds.read(x, address(x) + offset, shape.width, x.mask))


@family(r"ds_write_(b8|b16|b32|b64|b96|b128|b8_d16_hi|b16_d16_hi)")
def _write(d: Operands, match: re.Match[str]) -> Step:
    shape, sim, offset = SHAPES[match[1]], d.sim, d.inst.number("offset")
    address, data = _address(d, 0), leaving(d, 1, shape)

    def run(x: Ctx) -> None:
        sim.lds.write(x, address(x) + offset, data(x), shape.width, x.mask)
        sim.waits.issue(x, "lds", d.inst, (), sim.time)

    return run


def _two_offsets(d: Operands, width: int, strided: str | None) -> tuple[int, int]:
    """offset0 and offset1 in bytes: units of the element, or of 64 elements."""
    unit = width * (64 if strided else 1)
    return d.inst.number("offset0") * unit, d.inst.number("offset1") * unit


@family(r"ds_read2(st64)?_(b32|b64)")
def _read2(d: Operands, match: re.Match[str]) -> Step:
    width, sim = SHAPES[match[2]].width, d.sim
    first, second = _two_offsets(d, width, match[1])
    address, put = _address(d, 1), arriving(d, 0, Shape(2 * width), "lds")

    def run(x: Ctx) -> None:
        at = address(x)
        parts = [sim.lds.read(x, at + offset, width, x.mask) for offset in (first, second)]
        put(x, np.concatenate(parts))

    return run


@family(r"ds_write2(st64)?_(b32|b64)")
def _write2(d: Operands, match: re.Match[str]) -> Step:
    shape, sim = SHAPES[match[2]], d.sim
    offsets = _two_offsets(d, shape.width, match[1])
    address, data = _address(d, 0), (leaving(d, 1, shape), leaving(d, 2, shape))

    def run(x: Ctx) -> None:
        at = address(x)
        for offset, get in zip(offsets, data, strict=True):
            sim.lds.write(x, at + offset, get(x), shape.width, x.mask)
        sim.waits.issue(x, "lds", d.inst, (), sim.time)

    return run


@family(r"ds_read_(b64|b96)_tr_b(16|8|6|4)")
def _read_transposed(d: Operands, match: re.Match[str]) -> Step:
    """Sixteen lanes read a row-major tile 16 columns wide: lane l of them receives column l, from the first row on.

    A lane addresses one 64-bit (b6: 96-bit) piece: 16 bits: four lanes a row, 4 rows; 8 bits: two lanes a row, 8 rows;
    4 and 6 bits: one lane a row, 16 rows. (CDNA4 ISA; the order for 16 bits is that of three production kernels.)
    """
    bits, sim, offset = int(match[2]), d.sim, d.inst.number("offset")
    shape = Shape(8 if match[1] == "b64" else 12)
    address, put = _address(d, 1), arriving(d, 0, shape, "lds")
    count = 8 * shape.width // bits

    def run(x: Ctx) -> None:
        words = sim.lds.read(x, address(x) + offset, shape.width, x.mask)
        elements = split_bits(np.moveaxis(words, 0, -1), bits)
        # (waves, blocks of 16 lanes, rows of the tile, 16 columns)
        tile = elements.reshape(x.n, LANES // 16, count, 16)
        columns = np.ascontiguousarray(tile.swapaxes(2, 3)).reshape(x.n, LANES, count)
        put(x, np.moveaxis(join_bits(columns, bits), -1, 0))

    return run


def split_bits(words: Array, bits: int) -> Array:
    """(..., words) uint32 to (..., elements) of `bits` bits each, the lowest first, as uint32."""
    if bits in (8, 16):
        return np.ascontiguousarray(words).view(np.uint8 if bits == 8 else np.uint16).astype(_U32)
    single = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    groups = single.reshape(*single.shape[:-1], -1, bits).astype(_U32)
    return (groups << np.arange(bits, dtype=_U32)).sum(axis=-1, dtype=_U32)


def join_bits(elements: Array, bits: int) -> Array:
    """The reverse of `split_bits`."""
    if bits in (8, 16):
        return np.ascontiguousarray(elements.astype(np.uint8 if bits == 8 else np.uint16)).view(_U32)
    single = ((elements[..., None] >> np.arange(bits, dtype=_U32)) & _U32(1)).astype(np.uint8)
    flat = single.reshape(*elements.shape[:-1], -1)
    return np.packbits(flat, axis=-1, bitorder="little").view(_U32)


# --- permutations


@executes("ds_bpermute_b32", "ds_permute_b32")
def _permute(d: Operands) -> Step:
    """bpermute: each lane reads the lane that its address (times 4) names; 0 from a lane that is off. permute: each lane
    sends to that lane; lanes that receive nothing get 0, of several senders the highest wins."""
    offset, put = d.inst.number("offset"), arriving(d, 0, Shape(4), "lds")
    select, data = d.bits32(d.op(1)), d.bits32(d.op(2))
    backward = d.inst.mnemonic == "ds_bpermute_b32"

    def run(x: Ctx) -> None:
        lane = (x.full(select(x)) + _U32(offset)) >> _U32(2) & _U32(63)
        values, active = x.full(data(x)), x.active()
        index = lane.astype(np.int64)
        if backward:
            out = np.take_along_axis(np.where(active, values, _U32(0)), index, axis=1)
        else:
            out = np.zeros((x.n, LANES), _U32)
            rows, lanes = np.nonzero(active)
            out[rows, index[rows, lanes]] = values[rows, lanes]
        put(x, out[None])

    return run


@executes("ds_swizzle_b32")
def _swizzle(d: Operands) -> Step:
    """A fixed permutation within 32 lanes: masks of 5 bits, quads, or a rotation, encoded in the offset."""
    put, data = arriving(d, 0, Shape(4), "lds"), d.bits32(d.op(1))
    source = swizzle_source(d.inst.mods.get("offset", 0))

    def run(x: Ctx) -> None:
        values, active = x.full(data(x)), x.active()
        put(x, np.where(active[:, source], values[:, source], _U32(0))[None])

    return run


def swizzle_source(offset: object) -> Array:
    """The lane that each lane reads, from the number or the `swizzle(...)` form of the offset."""
    lane = np.arange(LANES)
    code = _swizzle_code(offset) if isinstance(offset, str) else int(offset) if isinstance(offset, int) else 0
    base, low = lane & 32, lane & 31
    if code >= 0xE000:
        return base | fft_order(low, code & 31)
    if code >= 0xC000:
        amount, keep = code >> 5 & 31, code & 31
        step = -amount if code >> 10 & 1 == 0 else amount
        moved = (low - step) % 32
        return base | (low & keep) | (moved & ~keep & 31)
    if code & 0x8000:
        return lane // 4 * 4 + (code >> 2 * (lane % 4) & 3)
    return base | ((low & (code & 31)) | (code >> 5 & 31)) ^ (code >> 10 & 31)


def fft_order(low: Array, mask: int) -> Array:
    """The bit-reversed order of 32 lanes that the FFT mode uses; `mask` keeps address bits."""
    reversed_bits = sum(((low >> k) & 1) << (4 - k) for k in range(5))
    return np.where(mask == 31, low, reversed_bits)


def _swizzle_code(text: str) -> int:
    inside = text.removeprefix("swizzle(").removesuffix(")")
    mode, *args = [part.strip().strip('"') for part in inside.split(",")]
    if mode == "QUAD_PERM":
        return 0x8000 | sum(int(a, 0) << 2 * k for k, a in enumerate(args))
    if mode == "BITMASK_PERM":
        keep, ones, flips = 0, 0, 0
        for k, letter in enumerate(reversed(args[0])):
            keep |= (letter in "pi") << k
            ones |= (letter == "1") << k
            flips |= (letter == "i") << k
        return keep | ones << 5 | flips << 10
    if mode == "BROADCAST":
        size, lane = int(args[0], 0), int(args[1], 0)
        return (~(size - 1) & 31) | lane << 5
    if mode == "SWAP":
        return 31 | int(args[0], 0) << 10
    if mode == "REVERSE":
        return 31 | (int(args[0], 0) - 1) << 10
    raise ValueError(f"swizzle mode {mode}")


# --- atomics

_NAMES = "add|sub|rsub|inc|dec|min|max|and|or|xor|wrxchg"


@family(rf"ds_(?:(?:({_NAMES})|(cmpst))(_rtn)?_([uibf]32|[uibf]64)|(pk)_add(_rtn)?_(f16|bf16))")
def _atomic(d: Operands, match: re.Match[str]) -> Step:
    compares, returns = match[2] is not None, bool(match[3] or match[6])
    name = "add" if match[5] else match[1] or "cmpst"
    kind = f"pk_{match[7]}" if match[5] else match[4].replace("b", "u")
    if not compares and atomic_function(name, kind) is None:
        raise d.fault(f"{d.inst.mnemonic} is unknown", "unsupported")
    shape, sim, offset = Shape(8 if kind.endswith("64") else 4), d.sim, d.inst.number("offset")
    first = int(returns)
    address, data = _address(d, first), d.words(d.op(first + 1), shape.regs)
    # ds_cmpst: the first data operand is compared, the second is written.
    other = d.words(d.op(first + 2), shape.regs) if compares else None
    put = arriving(d, 0, shape, "lds") if returns else None

    def run(x: Ctx) -> None:
        lanes = x.active()
        at, _ = sim.lds.place(x, address(x) + offset, shape.width, x.mask)
        values = np.broadcast_to(data(x), (shape.regs, x.n, LANES))[:, lanes]
        compare = None
        if other is not None:
            values, compare = np.broadcast_to(other(x), (shape.regs, x.n, LANES))[:, lanes], values
        old, changed = run_atomic(sim.lds.data, at[lanes], shape.width, atomic_step(name, kind, values, compare))
        for row, wave in enumerate(x.waves.tolist()):
            sim.lds.atomic(at[row][lanes[row]], wave, returns)
        sim.changes += changed
        if put is None:
            sim.waits.issue(x, "lds", d.inst, (), sim.time)
            return
        full = np.zeros((x.n, LANES, shape.regs), _U32)
        full[lanes] = old
        put(x, np.moveaxis(full, -1, 0))

    return run


@executes("ds_nop")
def _nop(d: Operands) -> Step:
    return lambda x: None
