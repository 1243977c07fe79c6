"""Atomics on global memory, as far as all targets do them alike: who does which element, and who else gets the result.

Every element happens once: registers, lanes and warps that hold copies are masked, and get the owner's result by shuffles, or through
shared memory from another warp. The CTA-wide meaning of release and acquire needs a barrier of the task before and after: each thread
orders its own accesses only. What one element costs is the target's (`Atomic`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mimw.codegen.lane import CTA, Lane, Tile, as_u32, bits_of
from mimw.codegen.lowering import Lowering, layout_of
from mimw.diagnostics import InternalError
from mimw.ir import layout as algebra
from mimw.ir.core import Value
from mimw.ir.types import I1, I32, U8, DType, PointerType, TensorType, element_of


class Atomic(Protocol):
    """One atomic instruction (or loop) on one element. `returns`: whether anybody looks at the old element."""

    @property
    def returns(self) -> bool:
        """Whether anybody looks at the old element."""
        ...

    def run(self, pointer: Lane, value: Lane, compare: Lane | None, guard: Lane | None) -> Lane:
        """The old element (zero where `guard` is false)."""
        ...

    def publish(self) -> None:
        """Before the barrier of a release: what this warp wrote is on its way to all who may see it."""
        ...

    def settle(self) -> None:
        """Before the barrier of an acquire: this warp's atomics are done."""
        ...

    def refresh(self) -> None:
        """After the barrier of an acquire: what this warp reads is new."""
        ...


def lower_atomic(
    ctx: Lowering, op: Any, make: Callable[[DType], Atomic], value: Value, compare: Value | None, mask: Value | None
) -> None:
    """An atomic op, each element by what `make` gives for the type that it has in memory."""
    b = ctx.b
    pointer = element_of(op.ptr.type)
    assert isinstance(pointer, PointerType)
    dtype = pointer.pointee
    is_bool = dtype is I1
    held = U8 if is_bool else dtype
    one = make(held)

    def bytes_(lanes: Tile | None) -> Tile | None:
        if lanes is None or not is_bool:
            return lanes
        return [b.select(x, b.const(U8, 1), b.const(U8, 0)) for x in lanes]

    pointers, values = ctx.tile(op.ptr), bytes_(ctx.tile(value))
    compares = bytes_(ctx.tile(compare) if compare is not None else None)
    masks = ctx.tile(mask) if mask is not None else None
    assert values is not None
    if op.sem in ("release", "acq_rel"):
        one.publish()
        b.barrier()
    if isinstance(op.result.type, TensorType):
        out = _tile(ctx, op, one, pointers, values, compares, masks)
    else:
        first = ctx.first_thread()
        guard = b.both(first, masks[0] if masks is not None else None)
        old = one.run(pointers[0], values[0], compares[0] if compares is not None else None, guard)
        out = [_to_all(ctx, op, old)] if one.returns else [old]
    if op.sem in ("acquire", "acq_rel") and one.returns:
        one.settle()
        b.barrier()
        one.refresh()
    if is_bool:
        out = [b.compare("ne", x, b.const(U8, 0)) for x in out]
    ctx.set(op.result, out)


def _to_all(ctx: Lowering, op: Any, old: Lane) -> Lane:
    """A scalar result from the first thread to all threads of the task."""
    b = ctx.b
    if ctx.num_warps == 1:
        lane = b.shuffle_from(old, b.const(I32, 0))
    else:
        place = b.plus(b.shared_base(), _scratch(op))
        b.store("shared", place, [old], ctx.first_thread(), "")
        b.barrier()
        lane = b.load("shared", old.dtype, place, 1, None, None, "")[0]
    return Lane(lane.dtype, lane.reg, lane.off, lane.part, CTA)


def _scratch(op: Any) -> int:
    at = op.attrs.get("scratch", -1)
    if at < 0:
        raise InternalError("an atomic without scratch memory", op.loc)
    return at


def _tile(
    ctx: Lowering, op: Any, one: Atomic, pointers: Tile, values: Tile, compares: Tile | None, masks: Tile | None
) -> list[Lane]:
    """Every element by its owner; its copies get the result afterwards."""
    b = ctx.b
    layout = layout_of(op.result)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    for copies, vectors in ((lanes, layout.lane), (warps, layout.warp)):
        if any(copies >> i & 1 and any(v) for i, v in enumerate(vectors)):
            raise InternalError(f"atomics on copies in other registers: {layout}", op.loc)
    owner = ctx.is_thread(lanes, warps)
    inside = ctx.holes(layout, op.result.type.shape)
    low = (1 << len(layout.reg)) - 1
    found: dict[int, Lane] = {}
    for r in range(layout.num_regs):
        if r & low & registers:
            continue
        guard = b.both(b.both(owner, inside(r)), masks[r] if masks is not None else None)
        found[r] = one.run(pointers[r], values[r], compares[r] if compares is not None else None, guard)
    if one.returns and warps:
        found = _through_shared(ctx, op, found, lanes | warps << ctx.warp_bits)
    elif one.returns and lanes:
        source = b.bit_and(b.thread_id(), (ctx.warp_size - 1) & ~lanes)
        found = {r: b.shuffle_from(x, source) for r, x in found.items()}
    out: list[Lane] = []
    coords = layout.reg_coords()
    first = {coords[r]: x for r, x in found.items()}
    for r in range(layout.num_regs):
        out.append(found.get(r) or first[coords[r]])
    return out


def _through_shared(ctx: Lowering, op: Any, found: dict[int, Lane], copies: int) -> dict[int, Lane]:
    """The owners' results to all who hold copies: a slot for each register and each thread that owns something."""
    b = ctx.b
    dtype = next(iter(found.values())).dtype
    size = bits_of(dtype) // 8
    bases: list[int] = []
    owners = 1
    for bit in range((ctx.warp_size * ctx.num_warps).bit_length() - 1):
        bases.append(0 if copies >> bit & 1 else owners * size)
        owners <<= 0 if copies >> bit & 1 else 1
    place = b.plus(b.add(b.shared_base(), as_u32(ctx.linear(tuple(bases)))), _scratch(op))
    owner = ctx.is_thread(copies & (ctx.warp_size - 1), copies >> ctx.warp_bits)
    for i, lane in enumerate(found.values()):
        b.store("shared", b.plus(place, i * owners * size), [lane], owner, "")
    b.barrier()
    return {
        r: b.load("shared", dtype, b.plus(place, i * owners * size), 1, None, None, "")[0] for i, r in enumerate(found)
    }
