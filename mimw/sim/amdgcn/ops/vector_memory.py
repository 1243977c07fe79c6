# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Vector memory: global, flat, scratch and buffer loads, stores and atomics, and loads that go straight to LDS.

Addresses as in the ISA's chapters "Vector memory operations" and "Flat memory instructions". Buffers are raw or structured
and linear; out of range loads give 0, stores and atomics do nothing. Cache modifiers (sc0, sc1, nt) order nothing here,
as memory is coherent in the simulator; sc0 on an atomic asks for the old value.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from mimw.sim.amdgcn.decode import Reg, Word
from mimw.sim.amdgcn.operands import Getter, Operands
from mimw.sim.amdgcn.ops.transfers import SHAPES, Shape, arriving, atomic_function, atomic_step, leaving, run_atomic
from mimw.sim.amdgcn.registry import Step, executes, family
from mimw.sim.amdgcn.state import LANES, Array, Ctx
from mimw.sim.amdgcn.types import PRIVATE_APERTURE, SHARED_APERTURE, join

# (addresses (n, 64) int64, lanes that reach memory: None for all of them)
Where = Callable[[Ctx], tuple[Array, "Array | None"]]
_SIZE = "|".join(sorted((k for k in SHAPES if k[0] in "usdb" and not k[1:2].isdigit()), key=len, reverse=True))


def _is_off(op: object) -> bool:
    return isinstance(op, Word) and op.text == "off"


# --- addresses


def _global_address(d: Operands, vaddr: int, saddr: int) -> Where:
    """A 64-bit VGPR address, or a 64-bit SGPR base with a 32-bit VGPR offset; plus a signed immediate."""
    offset = d.inst.number("offset")
    if saddr >= len(d.inst.operands) or _is_off(d.op(saddr)):
        get = d.src(vaddr, "u64", 3)
        return lambda x: (get(x).astype(np.int64) + offset, x.mask)
    base = d.src(saddr, "u64", 3)
    if _is_off(d.op(vaddr)):
        return lambda x: (base(x).astype(np.int64) + offset, x.mask)
    lane = d.bits32(d.op(vaddr))
    return lambda x: (base(x).astype(np.int64) + lane(x).astype(np.int64) + offset, x.mask)


def _scratch_offset(d: Operands, vaddr: int, saddr: int) -> Where:
    """Offsets in the lane's scratch memory: VGPR, SGPR and immediate, each optional."""
    parts = [d.bits32(d.op(k)) for k in (vaddr, saddr) if not _is_off(d.op(k))]
    offset = d.inst.number("offset")

    def run(x: Ctx) -> tuple[Array, Array | None]:
        total = np.full((1, 1), offset, np.int64)
        for get in parts:
            total = total + get(x).astype(np.int32).astype(np.int64)
        return total, x.mask

    return run


def _buffer_address(d: Operands, vaddr: int) -> Where:
    """Base, range and offsets of a buffer instruction: operands vaddr, descriptor, soffset follow each other.

    The lanes given back are those in range. Raw: offset below num_records - soffset. Structured: index below num_records.
    """
    inst = d.inst
    offen, idxen, imm = inst.flag("offen"), inst.flag("idxen"), inst.number("offset")
    descriptor, soffset = d.scalar_words(d.op(vaddr + 1), 4), d.bits32(d.op(vaddr + 2))
    index_of = offset_of = None
    address = d.op(vaddr)
    if isinstance(address, Reg) and (offen or idxen):
        index_of = d.bits32(Reg(address.file, address.first)) if idxen else None
        offset_of = d.bits32(Reg(address.file, address.first + int(idxen))) if offen else None

    def run(x: Ctx) -> tuple[Array, Array | None]:
        rsrc = descriptor(x)[:, :, None]
        base = join(rsrc[0], rsrc[1] & np.uint32(0xFFFF)).astype(np.int64)
        stride = ((rsrc[1] >> np.uint32(16)) & np.uint32(0x3FFF)).astype(np.int64)
        if (rsrc[1] >> np.uint32(31)).any() or (rsrc[3] >> np.uint32(23) & np.uint32(1)).any():
            raise d.fault("a swizzled or thread-id buffer: not yet in the AMDGCN simulator", "unsupported")
        records, extra = rsrc[2].astype(np.int64), soffset(x).astype(np.int64)
        offset = imm + (offset_of(x).astype(np.int64) if offset_of is not None else np.zeros((1, 1), np.int64))
        if index_of is not None:
            index = index_of(x).astype(np.int64)
            inside = (index < records) & ((stride == 0) | (offset < stride))
            offset = index * stride + offset
        else:
            inside = offset < records - extra
        room = np.broadcast_to(inside, (x.n, LANES))
        return base + extra + offset, room if x.mask is None else room & x.mask

    return run


def _dwords_in_range(
    d: Operands, vaddr: int, where: Where, shape: Shape
) -> Callable[[Ctx], list[tuple[int, Array, Array]]]:
    """A wide buffer access is checked dword by dword: (dword, addresses, lanes in range)."""
    descriptor = d.scalar_words(d.op(vaddr + 1), 4)

    def run(x: Ctx) -> list[tuple[int, Array, Array]]:
        addr, mask = where(x)
        rsrc = descriptor(x)[:, :, None]
        base = join(rsrc[0], rsrc[1] & np.uint32(0xFFFF)).astype(np.int64)
        raw = not d.inst.flag("idxen")
        out: list[tuple[int, Array, Array]] = []
        lanes = x.active() if mask is None else mask
        for k in range(shape.regs):
            inside = (addr + 4 * k - base < rsrc[2]) if raw else np.bool_(True)
            out.append((k, addr + 4 * k, np.broadcast_to(inside & lanes, (x.n, LANES))))
        return out

    return run


# --- global, flat, scratch


@family(rf"(global|flat|scratch)_load_({_SIZE})")
def _load(d: Operands, match: re.Match[str]) -> Step:
    space, shape = match[1], SHAPES[match[2]]
    put = arriving(d, 0, shape, "flat" if space == "flat" else "vm")
    memory = d.sim.memory
    if space == "scratch":
        offset = _scratch_offset(d, 1, 2)
        return lambda x: put(x, memory.scratch_load(x, offset(x)[0], shape.width, x.mask))
    where = _global_address(d, 1, 2)
    if space == "global":

        def run(x: Ctx) -> None:
            addr, mask = where(x)
            put(x, memory.load(x, addr, shape.width, mask))

        return run

    def run_flat(x: Ctx) -> None:
        addr, mask = where(x)
        total = np.zeros((shape.regs, x.n, LANES), np.uint32)
        for space_name, base, lanes in _flat_parts(x, addr, mask):
            if space_name == "shared":
                part = d.sim.lds.read(x, addr - base, shape.width, lanes)
            elif space_name == "private":
                part = memory.scratch_load(x, addr - base, shape.width, lanes)
            else:
                part = memory.load(x, addr, shape.width, lanes)
            total = np.where(lanes, part, total)
        put(x, total)

    return run_flat


def _flat_parts(x: Ctx, addr: Array, mask: Array | None) -> list[tuple[str, int, Array]]:
    """The lanes of a flat access by address space: (space, address of its aperture, lanes)."""
    full = x.full(addr)
    active = x.active() if mask is None else mask
    high = full >> 32
    shared, private = high == SHARED_APERTURE, high == PRIVATE_APERTURE
    parts = [("shared", SHARED_APERTURE << 32, shared & active), ("private", PRIVATE_APERTURE << 32, private & active),
             ("global", 0, ~(shared | private) & active)]  # fmt: skip
    return [part for part in parts if part[2].any()]


@family(rf"(global|flat|scratch)_store_({_SIZE})")
def _store(d: Operands, match: re.Match[str]) -> Step:
    space, shape = match[1], SHAPES[match[2]]
    data, sim = leaving(d, 1, shape), d.sim
    memory, kind = sim.memory, "flat" if space == "flat" else "vm"
    where = _scratch_offset(d, 0, 2) if space == "scratch" else _global_address(d, 0, 2)

    def run(x: Ctx) -> None:
        addr, mask = where(x)
        values = data(x)
        if space == "scratch":
            memory.scratch_store(x, addr, values, shape.width, mask)
        elif space == "global":
            memory.store(x, addr, values, shape.width, mask)
        else:
            for space_name, base, lanes in _flat_parts(x, addr, mask):
                if space_name == "shared":
                    sim.lds.write(x, addr - base, values, shape.width, lanes)
                elif space_name == "private":
                    memory.scratch_store(x, addr - base, values, shape.width, lanes)
                else:
                    memory.store(x, addr, values, shape.width, lanes)
        sim.waits.issue(x, kind, d.inst, (), sim.time)

    return run


# --- buffers


@family(rf"buffer_load_({_SIZE})")
def _buffer_load(d: Operands, match: re.Match[str]) -> Step:
    shape = SHAPES[match[1]]
    if d.inst.flag("lds"):
        return _buffer_to_lds(d, shape)
    put, where, memory = arriving(d, 0, shape, "vm"), _buffer_address(d, 1), d.sim.memory
    parts = _dwords_in_range(d, 1, where, shape)

    def run(x: Ctx) -> None:
        if shape.width <= 4:
            addr, mask = where(x)
            put(x, memory.load(x, addr, shape.width, mask))
            return
        put(x, np.stack([memory.load(x, addr, 4, mask)[0] for _, addr, mask in parts(x)]))

    return run


@family(rf"buffer_store_({_SIZE})")
def _buffer_store(d: Operands, match: re.Match[str]) -> Step:
    shape, sim = SHAPES[match[1]], d.sim
    data, where = leaving(d, 0, shape), _buffer_address(d, 1)
    parts = _dwords_in_range(d, 1, where, shape)

    def run(x: Ctx) -> None:
        values = data(x)
        if shape.width <= 4:
            addr, mask = where(x)
            sim.memory.store(x, addr, values, shape.width, mask)
        else:
            for k, addr, mask in parts(x):
                sim.memory.store(x, addr, values[k : k + 1], 4, mask)
        sim.waits.issue(x, "vm", d.inst, (), sim.time)

    return run


# --- straight to LDS


def _to_lds(d: Operands, shape: Shape, load: Callable[[Ctx], Array]) -> Step:
    """Lane l's bytes go to M0 + offset + l * size; narrow values are extended to a dword. Of M0 as many bits count as the memory of the part
    needs: 16 for 64 KiB, 18 for gfx950's 160 KiB (compilers put offsets beyond 64 KiB there)."""
    m0, offset, sim = d.m0(), d.inst.number("offset"), d.sim
    size = max(shape.width, 4)
    lane = np.arange(LANES, dtype=np.int64) * size
    bits = np.uint32(0x3FFFF if sim.arch == "gfx950" else 0xFFFF)

    def run(x: Ctx) -> None:
        words = load(x)
        at = (m0(x) & bits).astype(np.int64)[:, None] + offset + lane
        sim.lds.write(x, at, words, size, x.mask, dma=True)
        sim.waits.issue(x, "vm", d.inst, (), sim.time, dma=True)

    return run


def _buffer_to_lds(d: Operands, shape: Shape) -> Step:
    """Lanes out of range write zeros."""
    where, memory = _buffer_address(d, 0), d.sim.memory
    parts = _dwords_in_range(d, 0, where, shape)

    def load(x: Ctx) -> Array:
        if shape.width <= 4:
            addr, mask = where(x)
            return _signed_word(memory.load(x, addr, shape.width, mask), shape)
        return np.stack([memory.load(x, addr, 4, mask)[0] for _, addr, mask in parts(x)])

    return _to_lds(d, shape, load)


def _signed_word(words: Array, shape: Shape) -> Array:
    if not shape.signed:
        return words
    up = np.uint32(32 - 8 * shape.width)
    return ((words << up).view(np.int32) >> np.int32(up)).view(np.uint32)


@family(rf"global_load_lds_({_SIZE})")
def _global_to_lds(d: Operands, match: re.Match[str]) -> Step:
    shape, memory = SHAPES[match[1]], d.sim.memory
    where = _global_address(d, 0, 1)

    def load(x: Ctx) -> Array:
        addr, mask = where(x)
        return _signed_word(memory.load(x, addr, shape.width, mask), shape)

    return _to_lds(d, shape, load)


# --- atomics

_ATOMICS = "swap|cmpswap|add|sub|smin|umin|smax|umax|and|or|xor|inc|dec"


@family(rf"(global|flat|buffer)_atomic_(?:({_ATOMICS})(_x2)?|(add|min|max)_(f32|f64)|(pk)_add_(f16|bf16))")
def _atomic(d: Operands, match: re.Match[str]) -> Step:
    name, kind = _atomic_kind(match)
    regs, compares = (2 if kind in ("u64", "i64", "f64") else 1), name == "cmpswap"
    returns = d.inst.flag("sc0") or d.inst.flag("glc")
    if not compares and atomic_function(name, kind) is None:
        raise d.fault(f"{d.inst.mnemonic} is unknown", "unsupported")
    where, data = _atomic_operands(d, match[1], returns, regs * (2 if compares else 1))
    order = "flat" if match[1] == "flat" else "vm"
    put, sim = arriving(d, 0, Shape(4 * regs), order) if returns else None, d.sim

    def run(x: Ctx) -> None:
        addr, mask = where(x)
        words = np.broadcast_to(data(x), (regs * (2 if compares else 1), x.n, LANES))
        lanes = x.active() if mask is None else mask
        values, compare = words[:regs][:, lanes], words[regs:][:, lanes] if compares else None
        old = _atomic_parts(d, x, x.full(addr), lanes, 4 * regs, atomic_step(name, kind, values, compare))
        if put is None:
            sim.waits.issue(x, order, d.inst, (), sim.time)
            return
        full = np.zeros((x.n, LANES, regs), np.uint32)
        full[lanes] = old
        put(x, np.moveaxis(full, -1, 0))

    return run


def _atomic_kind(match: re.Match[str]) -> tuple[str, str]:
    """(name, type) of a vector memory atomic."""
    if match[2]:
        signed = match[2] in ("smin", "smax")
        return match[2], ("i" if signed else "u") + ("64" if match[3] else "32")
    return (match[4], match[5]) if match[4] else ("add", f"pk_{match[7]}")


def _atomic_operands(d: Operands, space: str, returns: bool, regs: int) -> tuple[Where, Getter]:
    first = int(returns and space != "buffer")
    if space == "buffer":
        return _buffer_address(d, 1), d.words(d.op(0), regs)
    return _global_address(d, first, first + 2), d.words(d.op(first + 1), regs)


def _atomic_parts(
    d: Operands, x: Ctx, addr: Array, lanes: Array, width: int, fn: Callable[[Array, Array], Array]
) -> Array:
    """Run an atomic on the lanes of a (n, 64) bool array: the old words (lanes, words)."""
    flat = addr[lanes].astype(np.int64)
    old = np.zeros((len(flat), width // 4), np.uint32)
    if (flat % width).any():
        raise d.fault(f"an atomic of {width} bytes that is not aligned", "bounds")
    shared = flat >> 32 == SHARED_APERTURE
    if shared.any():
        raise d.fault("a flat atomic on LDS: not yet in the AMDGCN simulator", "unsupported")
    for region, offsets, positions in d.sim.memory.find_checked(x, flat, lanes, width):
        found, changed = run_atomic(region.data, offsets, width, lambda words, now, p=positions: fn(words, p[now]))
        old[positions] = found
        d.sim.memory.changes += changed
    return old


@executes("buffer_wbl2", "buffer_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_gl0_inv")
def _cache(d: Operands) -> Step:
    """Cache maintenance: it counts on vmcnt (except invalidations, which complete at once)."""
    sim = d.sim
    if d.inst.mnemonic == "buffer_wbl2":
        return lambda x: sim.waits.issue(x, "vm", d.inst, (), sim.time)
    return lambda x: None
