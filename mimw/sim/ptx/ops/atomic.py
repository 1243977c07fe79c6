# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""atom and red: lanes that share a place run one after the other, in lane order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx import floats, formats
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.memory import gather, scatter
from mimw.sim.ptx.ops.access import ASYNC_STORES, address, items_of, sanitize, space_of, synchronise, vector_of
from mimw.sim.ptx.registry import Step, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import UNSIGNED, Ctx, bits_of, dtype_of

_INTEGER: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "exch": lambda old, new: new, "inc": lambda old, top: np.where(old >= top, 0, old + 1),
    "dec": lambda old, top: np.where((old == 0) | (old > top), top, old - 1),
}  # fmt: skip


def combine_of(op: str, kind: str) -> Callable[[Array, Array], Array]:
    """new bits = f(old bits, operand bits), on arrays of unsigned integers."""
    unsigned = UNSIGNED[bits_of(kind)]
    if kind in ("f16", "bf16", "f16x2", "bf16x2") and op in ("add", "min", "max"):
        base = kind.removesuffix("x2")
        fns: dict[str, Callable[[Array, Array], Array]] = {
            "add": lambda a, b: floats.odd(*floats.two_sum(a, b)), "min": np.fmin, "max": np.fmax,
        }  # fmt: skip
        fn = fns[op]

        def small(old: Array, new: Array) -> Array:
            a, b = (formats.decode(base, np.ascontiguousarray(v).view(np.uint16)) for v in (old, new))
            return formats.encode(base, fn(a, b)).view(unsigned)

        return small
    dtype, fn = dtype_of(kind), _INTEGER[op]
    return lambda old, new: np.ascontiguousarray(fn(old.view(dtype), new.view(dtype))).astype(dtype).view(unsigned)


def _apply_atomic(index: Array, update: Callable[[Array, Array], Array], read: Callable[[Array], Array],
                  write: Callable[[Array, Array], None]) -> Array:  # fmt: skip
    """Run `update(old, lanes)` over lanes in order, lanes that share a place one after the other; returns the old bits."""
    order = np.argsort(index, kind="stable")
    ranked = index[order]
    starts = np.r_[True, ranked[1:] != ranked[:-1]]
    at = np.arange(len(order))
    rank = np.empty(len(order), np.int64)
    rank[order] = at - np.maximum.accumulate(np.where(starts, at, 0))
    first = read(index)
    old = first.copy()
    for turn in range(int(rank.max()) + 1 if len(rank) else 0):
        lanes = np.nonzero(rank == turn)[0]
        old[lanes] = read(index[lanes])
        write(index[lanes], update(old[lanes], lanes))
    return old


@executes("atom", "red")
def _atom(s: Sim, inst: Inst, mods: list[str]) -> Step:
    returns = inst.opcode.startswith("atom")
    if "async" in mods:
        return ASYNC_STORES["red"](s, inst, mods)
    kind, space, count = mods[-1], space_of(mods), vector_of(mods)
    op = next(mod for mod in mods if mod in _INTEGER or mod == "cas")
    if kind == "b128":
        raise not_yet("128-bit atomics")
    at = inst.operands[1:] if returns else inst.operands
    width, raw = bits_of(kind) // 8, f"b{bits_of(kind)}"
    addr = address(s, at[0])
    sources = [s.m.rd(item, raw) for item in items_of(at[1])]
    swap = s.m.rd(at[2], raw) if op == "cas" else None
    puts = [s.m.wr(item, raw) for item in items_of(inst.operands[0])] if returns else []
    combine = None if op == "cas" else combine_of(op, kind)
    total, ordered = width * count, not {"acquire", "release", "acq_rel"}.isdisjoint(mods)

    def run(x: Ctx) -> None:
        access = s.mem.locate(x, space, addr(x), total, True)
        sanitize(s, access, total, False, True)
        sanitize(s, access, total, True, True)
        active = x.active()
        new = None if swap is None else x.full(swap(x))[active]
        for k, get in enumerate(sources):
            old = np.zeros(len(access.addr), UNSIGNED[width * 8])
            value = x.full(get(x))[active]
            for region, index, positions, _ in access.parts:
                pick = np.arange(len(old)) if positions is None else positions
                v, n = value[pick], None if new is None else new[pick]

                def update(before: Array, lanes: Array, v: Array = v, n: Array | None = n) -> Array:
                    if combine is not None:
                        return combine(before, v[lanes])
                    return np.where(before == v[lanes], before if n is None else n[lanes], before)

                old[pick] = _apply_atomic(
                    index + k * width, update,
                    lambda i, region=region: gather(region, i, width),
                    lambda i, w, region=region: scatter(region, i, width, w),
                )  # fmt: skip
            if puts:
                full = np.zeros((x.n, 32), old.dtype)
                full[active] = old
                puts[k](x, full)
        if ordered:
            synchronise(s, access, True, True)
        if op in ("cas", "exch"):
            s.step_aside(x)

    return run
