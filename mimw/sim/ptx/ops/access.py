# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""ld, st, cvta and their kin: what moves bytes one lane at a time, and what other memory instructions share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Addr, Inst, Operand, Reg, Symbol, Vec
from mimw.sim.ptx.clocks import merge
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.memory import (
    LOCAL_WINDOW,
    SHARED_WINDOW,
    WINDOW_SIZE,
    Access,
)
from mimw.sim.ptx.registry import Decoder, Plain, Step, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import UNSIGNED, Ctx, Getter, bits_of, dtype_of

_SPACES = {
    "global": "global", "const": "global", "param": "global", "shared": "shared", "shared::cta": "shared", "local": "local",
    "param::entry": "global", "shared::cluster": "cluster",
}  # fmt: skip
# st.async and red.async: filled by the family that knows the engine.
ASYNC_STORES: dict[str, Decoder] = {}
_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))


def space_of(mods: list[str]) -> str:
    """The state space among the modifiers, generic when none is named."""
    return next((_SPACES[mod] for mod in mods if mod in _SPACES), "generic")


def address(s: Sim, op: Operand) -> Getter:
    """A closure that gives the address of a memory operand as int64."""
    if not isinstance(op, Addr) or op.coords is not None:
        raise SimulationError("expected a plain memory operand")
    offset = np.int64(op.offset)
    if isinstance(op.base, Reg):
        kind = "u64" if bits_of(op.base.cls) == 64 else "u32"
        get = s.m.rd(op.base, kind)
        return lambda x: get(x).astype(np.int64) + offset
    if isinstance(op.base, Symbol):
        if op.base.name not in s.m.symbols:
            raise SimulationError(f"unknown symbol {op.base.name}")
        value = np.array([[s.m.symbols[op.base.name] + op.offset]], np.int64)
    else:
        value = np.array([[op.base.value + op.offset]], np.int64)
    return lambda x: value


def vector_of(mods: list[str]) -> int:
    """The element count of .v2, .v4, .v8."""
    return next((int(mod[1:]) for mod in mods if mod in ("v2", "v4", "v8")), 1)


def items_of(op: Operand) -> list[Operand]:
    """The registers of a data operand."""
    return op.items if isinstance(op, Vec) else [op]


def stored_bytes(x: Ctx, values: list[Array]) -> Callable[[], Array]:
    """What the executing lanes store, (lanes, bytes) uint8; `values` as `Memory.store` takes them."""

    def get() -> Array:
        full = np.stack([np.ascontiguousarray(x.full(v)) for v in values], axis=-1)
        flat = full.reshape(-1, len(values)) if x.mask is None else full[x.mask]
        return np.ascontiguousarray(flat).view(np.uint8)

    return get


def sanitize(
    s: Sim, access: Access, width: int, store: bool, atomic: bool = False, new: Callable[[], Array] | None = None
) -> None:
    """Tell the sanitizer of the shared part of an access; `new`: the bytes that a store writes."""
    for warp, cta in access.remote:
        s.clusters.touch_from(warp, cta, s.pc)
    if s.san is None:
        return
    for _, index, positions, shared in access.parts:
        if shared:
            pick = slice(None) if positions is None else positions
            rows = access.rows[pick]
            if store:

                def data(pick: Array | slice = pick, index: Array = index) -> tuple[Array, Array]:
                    assert new is not None
                    return new()[pick], s.mem.shared.data[index[:, None] + np.arange(width)]

                s.san.write(
                    rows, access.lanes[pick], index, width, s.pc, atomic, data=data if new is not None else None
                )
            else:
                s.san.read(rows, access.lanes[pick], index, width, s.pc, atomic)


def synchronise(s: Sim, access: Access, acquires: bool, releases: bool) -> None:
    """A strong access of shared memory passes clocks through its address: how flags order plain accesses.

    volatile and relaxed count as well: they stand for fence-and-flag idioms. Plain atom and red do not.
    """
    if s.san is None:
        return
    for _, index, positions, shared in access.parts:
        if not shared:
            continue
        rows = access.rows[slice(None) if positions is None else positions]
        for row, at in sorted({*zip(rows.tolist(), index.tolist(), strict=True)}):
            if acquires and at in s.flags:
                s.san.acquire(row, s.flags[at])
            if releases:
                s.flags[at] = merge(s.flags.get(at), s.san.release(row))


def _raw(kind: str) -> str:
    return kind if kind[0] in "su" else f"b{bits_of(kind)}"


@executes("ld", "ldu")
def _ld(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind, space, count = mods[-1], space_of(mods), vector_of(mods)
    if kind == "b128":
        raise not_yet("ld.b128")
    fast = _ld_param(s, inst, mods)
    if fast is not None:
        return fast
    width = bits_of(kind) // 8
    total, strong = width * count, not _STRONG.isdisjoint(mods)
    addr, raw, dtype = address(s, inst.operands[1]), _raw(kind), dtype_of(_raw(kind))
    puts = [s.m.wr(op, raw) for op in items_of(inst.operands[0])]

    def run(x: Ctx) -> None:
        access = s.mem.locate(x, space, addr(x), total, False)
        sanitize(s, access, total, False, strong)
        for put, value in zip(puts, s.mem.load(x, access, width, count), strict=False):
            put(x, value.view(dtype))
        if strong:
            synchronise(s, access, True, False)
            s.step_aside(x)

    return run


def _ld_param(s: Sim, inst: Inst, mods: list[str]) -> Plain | None:
    """ld.param from a named parameter: the value is known now."""
    op = inst.operands[1]
    if "param" not in mods and "param::entry" not in mods:
        return None
    if not isinstance(op, Addr) or not isinstance(op.base, Symbol):
        return None
    kind, count = mods[-1], vector_of(mods)
    width = bits_of(kind) // 8
    data = s.params.get(op.base.name)
    if data is None:
        raise SimulationError(f"unknown parameter {op.base.name}", inst)
    if op.offset < 0 or op.offset + width * count > len(data):
        raise SimulationError(f"load outside parameter {op.base.name} of {len(data)} bytes", inst)
    values = [
        np.array([[int.from_bytes(data[at : at + width], "little")]], UNSIGNED[width * 8]).view(dtype_of(_raw(kind)))
        for at in range(op.offset, op.offset + width * count, width)
    ]
    puts = [s.m.wr(item, _raw(kind)) for item in items_of(inst.operands[0])]

    def run(x: Ctx) -> None:
        for put, value in zip(puts, values, strict=False):
            put(x, value)

    return run


@executes("st")
def _st(s: Sim, inst: Inst, mods: list[str]) -> Step:
    if "async" in mods:
        return ASYNC_STORES["st"](s, inst, mods)
    if "bulk" in mods:
        raise not_yet(inst.opcode)
    kind, space, count = mods[-1], space_of(mods), vector_of(mods)
    if kind == "b128":
        raise not_yet("st.b128")
    width = bits_of(kind) // 8
    total, strong = width * count, not _STRONG.isdisjoint(mods)
    addr = address(s, inst.operands[0])
    gets = [s.m.rd(op, f"b{width * 8}") for op in items_of(inst.operands[1])]

    def run(x: Ctx) -> None:
        access = s.mem.locate(x, space, addr(x), total, True)
        values = [get(x) for get in gets]
        sanitize(s, access, total, True, strong, stored_bytes(x, values))
        s.mem.store(x, access, width, values)
        if strong:
            synchronise(s, access, False, True)
            s.wakes += 1

    return run


@executes("cvta")
def _cvta(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind, to = mods[-1], mods[0] == "to"
    space = next((_SPACES[mod] for mod in mods if mod in _SPACES), "global")
    base = {"shared": SHARED_WINDOW, "cluster": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)
    a, put = s.m.rd(inst.operands[1], kind), s.m.wr(inst.operands[0], kind)
    if kind != "u64" and base:
        raise not_yet(inst.opcode)
    shift = np.uint64(base if not to else (1 << 64) - base) if base else np.uint64(0)
    return lambda x: put(x, a(x) + shift if base else a(x))


@executes("isspacep")
def _isspacep(s: Sim, inst: Inst, mods: list[str]) -> Step:
    space = _SPACES[mods[0]]
    a, put = s.m.rd(inst.operands[1], "u64"), s.m.wr(inst.operands[0], "pred")
    windows = {"shared": SHARED_WINDOW, "cluster": SHARED_WINDOW, "local": LOCAL_WINDOW}

    def within(v: Array, base: int) -> Array:
        return (v >= np.uint64(base)) & (v < np.uint64(base + WINDOW_SIZE))

    def run(x: Ctx) -> None:
        v = a(x)
        if space in windows:
            put(x, within(v, windows[space]))
        else:
            put(x, ~(within(v, SHARED_WINDOW) | within(v, LOCAL_WINDOW)))

    return run
