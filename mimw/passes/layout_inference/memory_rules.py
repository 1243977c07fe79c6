"""Layout rules of loads, stores and shared memory: coalesced global accesses, wide shared ones."""

from __future__ import annotations

from math import prod

from mimw.diagnostics import InternalError
from mimw.ir.core import OpBase, Value
from mimw.ir.lane_runs import offsets_of, run_layout
from mimw.ir.layout import Layout, SharedLayout, owner_mask
from mimw.ir.layout_factories import turned_block
from mimw.ir.ops.async_copy import AsyncLoadOp
from mimw.ir.ops.memory import LocalAllocOp
from mimw.ir.types import MemDescType, PointerType, TensorType, element_of
from mimw.passes.facts import vector_width
from mimw.passes.layout_inference import costs
from mimw.passes.layout_inference.rule import Context, Rule, bits_of


class AccessRule(Rule):
    """load, store, atomics, async_copy.load: everything in one layout, coalesced if it can be."""

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        ptr, mask = op.operands[0], _mask(op)
        t = ptr.type
        if not isinstance(t, TensorType):
            return []
        fact = ctx.facts.of(ptr)
        order = tuple(sorted(range(t.rank), key=lambda d: (-min(fact.contiguity[d], t.shape[d]), -d)))
        d, size = order[0], _pointee_bytes(t)
        vec = min(fact.contiguity[d], max(1, fact.divisor[d] // size), max(1, 16 // size))
        if mask is not None:
            vec = min(vec, ctx.facts.of(mask).constancy[d])
        first = ctx.spread(t.shape, order, vec)
        straight = _straight(op, d, vec * size, ctx)
        if straight is not None:
            return [straight, first]
        if t.rank == 1:
            return [first]
        turned = _turned(op, order, vec, ctx) if ctx.target.has("mfma") else []
        warps_apart = _warps_on_slow_dims(t.shape, order, vec, ctx)
        return [first, *turned] if warps_apart is first else [first, warps_apart, *turned]

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        ptr = op.operands[0]
        t = ptr.type
        assert isinstance(t, TensorType)
        bits = 8 * _pointee_bytes(t)
        vec = vector_width(ctx.facts, ptr, _mask(op), primary, bits)
        fact = ctx.facts.of(ptr)
        run = max(range(t.rank), key=lambda d: min(fact.contiguity[d], t.shape[d]))
        if fact.contiguity[run] == 1:
            run = -1
        price = costs.global_access(primary, run, vec, bits, op.name == "memory.store")
        buffer = _buffer(op, ctx)
        if buffer is not None and not _is_straight(buffer, primary, ctx):
            price += costs.shared_bytes(primary, bits)  # through registers
        return price


def _warps_on_slow_dims(shape: tuple[int, ...], order: tuple[int, ...], vec: int, ctx: Context) -> Layout:
    """As the coalesced layout, but the warps take the slowest dimension first: each keeps whole rows for reductions."""
    plain = ctx.spread(shape, order, vec)
    bits = [v for v in plain.warp if any(v)]
    upper = [v for v in (*plain.reg, *plain.warp) if any(v)]
    slow = [v for d in reversed(order) for v in sorted((u for u in upper if u[d]), reverse=True)]
    low = plain.contiguity(order[0]).bit_length() - 1
    slow = [v for v in slow if v not in plain.reg[:low]]
    warp = slow[: len(bits)]
    if not bits or set(warp) == set(bits):
        return plain
    reg = [*plain.reg[:low], *sorted((v for v in upper if v not in warp and v not in plain.reg[:low]), reverse=False)]
    zeros = [v for v in plain.warp if not any(v)]
    return Layout.get(plain.dims, reg, plain.lane, [*reversed(warp), *zeros])


def _turned(op: OpBase, order: tuple[int, ...], vec: int, ctx: Context) -> list[Layout]:
    """For a tile that is only stored in a buffer which lies along the other dimension: threads hold neighbours of both, so that
    their stores are 8 bytes wide, and the lanes next to them fill rows of the buffer."""
    users = op.results[0].users if op.results else []
    layouts = [u.type.layout for u in users if isinstance(u, LocalAllocOp) and u.type.layout is not None]
    t = op.results[0].type if op.results else None
    if not isinstance(t, TensorType) or t.rank != 2 or len(layouts) != len(users) or not users or bits_of(t) > 16:
        return []
    if any(layout.bases[order[1]][:1] != (1,) for layout in layouts):
        return []
    run = _STORE_BYTES * 8 // bits_of(t)
    return [turned_block(t.shape, order, ctx.num_warps, vec, run, _ROW_BYTES // _STORE_BYTES, ctx.target.warp_size)]


_STORE_BYTES, _ROW_BYTES = 8, 128
"""What a lane stores at once of a turned tile, and what the shared memory takes in a cycle."""


def _buffer(op: OpBase, ctx: Context) -> MemDescType | None:
    """The buffer that lanes can fill straight from global memory: of an asynchronous copy, or of a load that feeds one only, where copies
    are wide and shared memory holds the buffers of a loop four times (two slots each for two CTAs: `pipelining` then makes copies of
    such loads). What a mask leaves out registers fill for less."""
    if not ctx.target.lane_copies:
        return None
    if isinstance(op, AsyncLoadOp):
        t = op.dst.type
        return t if isinstance(t, MemDescType) else None
    users = op.results[0].users if op.name == "memory.load" and _mask(op) is None else []
    if len(users) != 1 or not isinstance(users[0], LocalAllocOp) or ctx.target.lane_copies[0] < 16:
        return None
    assert op.parent is not None
    buffers = [each for each in op.parent.ops if isinstance(each, LocalAllocOp) and each.src is not None]
    total = sum(prod(each.type.shape) * each.type.dtype.itemsize for each in buffers)
    return users[0].type if 4 * total <= ctx.target.max_shared_bytes else None


def _straight(op: OpBase, dim: int, run: int, ctx: Context) -> Layout | None:
    """The layout in which lanes copy straight into shared memory, where addresses allow `run` bytes at once along `dim`."""
    t = _buffer(op, ctx)
    if t is None:
        return None
    shared = t.layout or SharedLayout.row_major(t.shape)
    size = t.dtype.itemsize
    if shared.rank > 1 and shared.bases[dim][:1] != (1,):
        return None  # the buffer lies along another dimension than global memory
    for most in ctx.target.lane_copies:
        if most <= max(run, size):
            layout = run_layout(t.shape, shared, size, most, ctx.num_warps, ctx.target.warp_size)
            if layout is not None:
                return layout
    return None


def _is_straight(t: MemDescType, layout: Layout, ctx: Context) -> bool:
    """Whether lanes copy straight into a buffer."""
    shared = t.layout or SharedLayout.row_major(t.shape)
    return any(offsets_of(layout, shared, t.dtype.itemsize, size) is not None for size in ctx.target.lane_copies)


def _mask(op: OpBase) -> Value | None:
    position = next((i for i, f in enumerate(op.spec.operands) if f.name == "mask"), -1)
    return op.operands[sum(op.segments[:position])] if position >= 0 and op.segments[position] else None


def _pointee_bytes(t: TensorType) -> int:
    e = element_of(t)
    if not isinstance(e, PointerType):
        raise InternalError(f"{t} holds no pointers")
    return e.pointee.itemsize


class AtomicRule(AccessRule):
    """Atomics: copies of an element lie in the same register of other threads, as they get their results by that."""

    def from_operand(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        _, lanes, warps, _ = owner_mask(layout)
        for copies, vectors in ((lanes, layout.lane), (warps, layout.warp)):
            if any(copies >> i & 1 and any(v) for i, v in enumerate(vectors)):
                return None
        return layout

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return self.from_operand(op, index, layout)


class SharedRule(Rule):
    """local_alloc with a source, local_store, local_load: any layout, priced by the width of the accesses."""

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        if op.results and any(user.name == "mma.dot" for user in op.results[0].users):
            return []  # the product says how: ldmatrix serves its layout
        t = _shared_tile(op)
        return [ctx.spread(t.shape, None, max(1, 128 // bits_of(t)))]

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        t = _shared_tile(op)
        memory = _memdesc(op)
        bits = bits_of(t)
        run = 1
        multiplied = bool(op.results) and any(user.name == "mma.dot" for user in op.results[0].users)
        if bits == 16 and multiplied and not ctx.target.has("mfma"):
            return primary.num_regs / 2 * costs.WAVEFRONT  # ldmatrix
        if memory.layout is not None and ctx.target.has("mfma"):
            run = min(_run_in_registers(primary, memory.layout), max(1, 128 // bits))
            if bits == 16 and multiplied and ctx.target.has("ds_read_tr"):
                run = max(run, 4)  # turned by the read
        elif memory.layout is not None:
            for d, bases in enumerate(memory.layout.bases):
                if bases[:1] == (1,):
                    run = max(run, min(primary.contiguity(d), max(1, 128 // bits)))
        return primary.num_regs / run * (max(1.0, run * bits / 32) * costs.WAVEFRONT + 1)


def _run_in_registers(layout: Layout, memory: SharedLayout) -> int:
    """Neighbours in memory that a thread holds, in whatever registers: an access takes them together."""
    for d, bases in enumerate(memory.bases):
        if bases[:1] == (1,):
            held = {v[d] for v in layout.reg if v[d] and not any(x for e, x in enumerate(v) if e != d)}
            run = 1
            while run in held:
                run *= 2
            return run
    return 1


def _shared_tile(op: OpBase) -> TensorType:
    values = (*op.operands, *op.results)
    return next(v.type for v in values if isinstance(v.type, TensorType))


def _memdesc(op: OpBase) -> MemDescType:
    values = (*op.operands, *op.results)
    return next(v.type for v in values if isinstance(v.type, MemDescType))
