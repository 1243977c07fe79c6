"""How much shared memory an op needs while it runs, and how its bytes are used.

Pure functions of an op with layouts: the allocation pass reserves `scratch_bytes(op)` at the op's attribute `scratch`, the lowering
works inside them. Inside one op the lowering synchronises by itself; before and after it the pass does.
"""

from __future__ import annotations

from mimw.ir.conversion import UNLIMITED, Plan, plan_conversion
from mimw.ir.core import OpBase, Value
from mimw.ir.layout import Layout, owner_mask
from mimw.ir.ops.atomic import AtomicCasOp, AtomicRmwOp
from mimw.ir.ops.tensor import ConvertLayoutOp, ReduceOp, ScanOp
from mimw.ir.reduction import ReducePlan, reduce_plan, scan_plan
from mimw.ir.types import DType, MemDescType, TensorType, element_of

ALIGN = 16


def conversion_plan(op: ConvertLayoutOp) -> Plan:
    """How a conversion goes, within its budget."""
    src, dst = _layout(op.src), op.type.layout
    assert src is not None and dst is not None
    return plan_conversion(src, dst, op.type.shape, element_bits(op.src), op.budget or UNLIMITED)


def scratch_bytes(op: OpBase) -> int:
    """Bytes of shared memory that an op needs while it runs; 0 for most."""
    if isinstance(op, ConvertLayoutOp):
        src, dst = _layout(op.src), op.type.layout
        if src is None or dst is None:
            return 0
        return conversion_plan(op).scratch_bytes
    if isinstance(op, ReduceOp):
        layout = _layout(op.srcs[0])
        if layout is None:
            return 0
        return sum(reduce_regions(reduce_plan(layout, op.axis), layout, _slot_sizes(op.srcs, layout, op.axis)))
    if isinstance(op, ScanOp):
        layout = _layout(op.srcs[0])
        if layout is None:
            return 0
        return sum(scan_regions(layout, op.axis, op.reverse, _slot_sizes(op.srcs, layout, op.axis)))
    if isinstance(op, (AtomicRmwOp, AtomicCasOp)):
        return atomic_bytes(op)
    return 0


def atomic_bytes(op: AtomicRmwOp | AtomicCasOp) -> int:
    """Bytes that an atomic's results take on their way to other warps that hold copies: one element each; a scalar is such a one."""
    if not op.result.users:
        return 0
    size = element_bits(op.result) // 8
    if not isinstance(op.result.type, TensorType):
        return ALIGN
    layout = op.result.type.layout
    if layout is None:
        return 0
    registers, lanes, warps, _ = owner_mask(layout)
    if not warps:
        return 0
    bits = len(layout.lane) + len(layout.warp) - (lanes.bit_count() + warps.bit_count())
    return _align((layout.num_regs >> registers.bit_count() << bits) * size)


DESCRIPTOR_BYTES = 144
"""Shared memory of a `make_descriptor` for the whole kernel, at a multiple of 128: a tensor map under way, and what the CTA's maps have in common."""

SLOT_ALIGN = 1024
"""Every buffer, and every slot of a ring, starts at a multiple of the longest swizzle period (128-byte swizzle: 8 rows of 128 bytes)."""


def slot_bytes(t: MemDescType) -> int:
    """Bytes of one slot of a ring of buffers of type `t` (the view's type)."""
    if t.layout is None:
        n = t.dtype.itemsize
        for s in t.shape:
            n *= s
        return n
    size = t.layout.size * t.dtype.itemsize
    return (size + SLOT_ALIGN - 1) // SLOT_ALIGN * SLOT_ALIGN


def natural_slot(t: MemDescType) -> int:
    """Bytes of one slot of a ring of type `t`, as the type says without a layout, rounded up to where slots start."""
    size = t.dtype.itemsize
    for n in t.shape[1:]:
        size *= n
    return (size + SLOT_ALIGN - 1) // SLOT_ALIGN * SLOT_ALIGN


def slot_distance(ring: MemDescType) -> int:
    """Bytes from one slot of a ring to the next."""
    return slot_bytes(MemDescType(ring.shape[1:], ring.dtype, ring.space, ring.layout))


def _slot_sizes(srcs: list[Value], layout: Layout, axis: int) -> list[int]:
    """Bytes of an element of each source; where the axis has holes, one more for the flag that a partial result may need."""
    t = srcs[0].type
    sizes = [element_bits(v) // 8 for v in srcs]
    if isinstance(t, TensorType) and layout.shape_padded[axis] != t.shape[axis]:
        sizes.append(1)
    return sizes


def element_bits(value: Value) -> int:
    """Bits of an element where it lies in shared memory: pointers 64, i1 8."""
    e = element_of(value.type)
    return e.bits if isinstance(e, DType) else 64


def reduce_lanes(plan: ReducePlan, layout: Layout) -> int:
    """Mask of the lane bits that tell partial results apart once the butterflies are done (a lane's slot in the scratch)."""
    every = layout.num_lanes - 1
    done = 0
    for step in plan.lane_steps:
        if step.partner is not None or step.lane_xor & (step.lane_xor - 1):
            return every
        done |= step.lane_xor
    if any(step.lane_xor or step.partner is not None for step in plan.warp_steps):
        return every
    return every & ~done


def reduce_regions(plan: ReducePlan, layout: Layout, elem_bytes: list[int]) -> list[int]:
    """Bytes of the scratch for each source of a reduction: one slot a group, warp and distinct lane."""
    if not plan.warp_steps:
        return [0] * len(elem_bytes)
    lanes = 1 << reduce_lanes(plan, layout).bit_count()
    slots = len(plan.groups) * layout.num_warps * lanes
    return [_align(slots * n) for n in elem_bytes]


def scan_regions(layout: Layout, axis: int, reverse: bool, elem_bytes: list[int]) -> list[int]:
    """Bytes of the scratch for each source of a scan: the values that one step sends, of all threads."""
    most = 0
    for step in scan_plan(layout, axis, reverse).steps:
        if step.crosses_warps:
            most = max(most, len({j for _, j in step.pairs}))
    threads = layout.num_lanes * layout.num_warps
    return [_align(most * threads * n) for n in elem_bytes]


def _align(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN


def _layout(value: Value) -> Layout | None:
    t = value.type
    return t.layout if isinstance(t, TensorType) else None
