"""Tensor maps that a kernel makes itself: where they live, how they are edited and published.

The TMA engine reads maps from global memory. Each module with such a kernel has a pool of entries, one for every CTA that can run at once
(32 an SM); a CTA takes a free one when it starts, with a compare-and-swap from its SM's first entry on, and gives it back when all its threads are
done. An entry has room for the maps of all `make_descriptor` ops (those that share a room: once). A map is edited in shared memory, where
passes have reserved 128 bytes for each op and 16 more, in which the first op's hold the number of the CTA's entry. PTX ISA, `tensormap.replace`
and `tensormap.cp_fenceproxy`.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import CTA, Lane
from mimw.codegen.lowering import Lowering, lowers, refuse
from mimw.codegen.machine import Block, Edge, Imm, Operand, Reg, Special, Symbol, Terminator
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.ptx.module import Variable
from mimw.diagnostics import CompilationError, InternalError
from mimw.ir.core import Function
from mimw.ir.ops.async_copy import MadeDescriptorOp, MakeDescriptorOp
from mimw.ir.tma import box_plan
from mimw.ir.types import I1, I32, U32, U64, DType

MAP_BYTES = 128
ENTRIES = 8192
"""256 SMs with 32 CTAs each."""
_OWNERS, _MAPS = "mimw_map_owners", "mimw_maps"
_ELEMENTS = {"u32": 2, "i32": 3, "u64": 4, "i64": 5, "f16": 6, "f32": 7, "f64": 9, "bf16": 10}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


def makers(function: Function) -> list[MakeDescriptorOp]:
    """The ops that make maps, in program order."""
    return [op for op in function.walk() if isinstance(op, MakeDescriptorOp)]


def _rooms(function: Function) -> dict[object, int]:
    """The bytes that stand before each room in an entry (by number, or by the op that has one of its own), and "end": the entry's bytes."""
    found: dict[object, int] = {}
    total = 0
    for op in makers(function):
        if _room(op) not in found:
            found[_room(op)] = total
            total += op.slots * MAP_BYTES
    found["end"] = total
    return found


def _room(op: MakeDescriptorOp | MadeDescriptorOp) -> object:
    return op.room if op.room >= 0 else op


def variables(function: Function) -> list[Variable]:
    """What the module needs beside the kernel."""
    size = _rooms(function)["end"]
    if not size:
        return []
    return [
        Variable("global", _OWNERS, "b8", 4 * ENTRIES, 4),
        Variable("global", _MAPS, "b8", size * ENTRIES, MAP_BYTES),
    ]


def _entry_place(ctx: Lowering) -> Lane:
    """Where in shared memory the number of the CTA's entry stands."""
    first = makers(ctx.function)[0]
    if first.scratch < 0:
        raise InternalError("a descriptor without shared memory to edit it in", first.loc)
    return ctx.b.plus(ctx.b.shared_base(), first.scratch + MAP_BYTES)


def take_entry(ctx: Lowering) -> None:
    """The task's leader finds a free entry and leaves its number in shared memory."""
    b = ptx_builder(ctx)
    assert ctx.leader is not None
    b.hint = "entry"
    sm, owners = b.reg("b32"), b.reg("b64")
    b.emit("mov.u32", [sm, Special("%smid")], 1)
    b.emit("mov.u64", [owners, Symbol(_OWNERS)], 1)
    start = b.register(b.bit_and(b.shift(Lane(U32, sm), 5), ENTRIES - 1))
    place = b.address("shared", _entry_place(ctx))
    entry = b.reg("b32")
    search, attempt, found, done = Block("take_map"), Block("try_map", [entry]), Block("took_map"), Block("maps")
    b.block.term = Terminator([Edge(search, []), Edge(done, [])], b.register(ctx.leader), False, b.loc)
    b.open_scope()
    ctx.place(search)
    ctx.jump(attempt, [start])
    ctx.place(attempt)
    at = b.op("add", U64, Lane(U64, owners), b.widen_scaled(Lane(U32, entry), U64, 4))
    old, free = b.reg("b32"), b.reg("pred")
    b.emit("atom.acquire.gpu.global.cas.b32", [old, b.address("global", at), Imm(0), Imm(1)], 1)
    b.emit("setp.eq.u32", [free, old, Imm(0)], 1)
    following = b.register(b.bit_and(b.plus(Lane(U32, entry), 1), ENTRIES - 1))
    b.block.term = Terminator([Edge(found, []), Edge(attempt, [following])], free, False, b.loc)
    ctx.place(found)
    b.emit("st.shared.b32", [place, entry])
    ctx.jump(done, [])
    b.close_scope()
    ctx.place(done)


def read_entry(ctx: Lowering) -> None:
    """Every thread learns where the CTA's maps lie; a barrier stands between this and `take_entry`."""
    b = ptx_builder(ctx)
    b.hint = "maps"
    entry = b.reg("b32")
    b.emit("ld.shared.b32", [entry, b.address("shared", _entry_place(ctx))], 1)
    place, generic = b.reg("b64"), b.reg("b64")
    b.emit("mov.u64", [place, Symbol(_MAPS)], 1)
    b.emit("cvta.global.u64", [generic, place], 1)
    size = _rooms(ctx.function)["end"]
    offset = b.widen_scaled(Lane(U32, entry), U64, size)
    ctx.maps = b.op("add", U64, Lane(U64, generic, uniform=CTA), offset)


def give_entry_back(ctx: Lowering) -> None:
    """One thread frees the entry; all copies through its maps are done."""
    b = ptx_builder(ctx)
    b.hint = "entry"
    first = b.register(b.compare("eq", b.thread_id(), b.const(I32, 0)))
    entry, owners = b.reg("b32"), b.reg("b64")
    b.emit("ld.shared.b32", [entry, b.address("shared", _entry_place(ctx))], 1)
    b.emit("mov.u64", [owners, Symbol(_OWNERS)], 1)
    at = b.op("add", U64, Lane(U64, owners), b.widen_scaled(Lane(U32, entry), U64, 4))
    zero = b.register(b.const(U32, 0))
    b.emit("st.release.gpu.global.b32", [b.address("global", at), zero], 0, Lane(I1, first))


def map_address(ctx: Lowering, op: MakeDescriptorOp | MadeDescriptorOp) -> Lane:
    """The generic address of the map that an op makes (or made, in another task)."""
    b = ptx_builder(ctx)
    if ctx.maps is None:
        raise InternalError("a task that does not know where its maps lie", op.loc)
    address = b.plus(ctx.maps, _rooms(ctx.function)[_room(op)])
    if op.slot is not None:
        address = b.add(address, b.widen_scaled(ctx.scalar(op.slot), U64, MAP_BYTES))
    return Lane(U64, b.register(address), uniform=CTA)


def acquire_map(ctx: Lowering, address: Lane) -> None:
    """What was published is seen by this thread's later copies."""
    b = ptx_builder(ctx)
    b.emit("fence.proxy.tensormap::generic.acquire.gpu", [b.address("global", address), Imm(MAP_BYTES)])


@lowers("async_copy.make_descriptor", target="nvidia")
def lower_make_descriptor(ctx: Lowering, op: Any) -> None:
    """The task's first warp clears, edits and publishes the map."""
    if not ctx.target.has("tma") or not ctx.target.has("setmaxnreg"):
        raise refuse(op, ctx.target, "it cannot edit tensor maps")
    b = ptx_builder(ctx)
    fields = _fields(ctx, op)
    address = map_address(ctx, op)
    stage = b.address("shared", b.plus(b.shared_base(), op.scratch))
    first, done = Block("edit_map"), Block("made_map")
    if ctx.num_warps > 1:
        mine = b.register(b.compare("eq", b.uniform_warp_id(), b.const(I32, 0)))
        b.block.term = Terminator([Edge(first, []), Edge(done, [])], mine, True, b.loc)
        ctx.place(first)
    b.open_scope()
    lane = b.bit_and(b.thread_id(), 31)
    mine_word = b.add(b.plus(b.shared_base(), op.scratch), b.times(Lane(U32, lane.reg), 4))
    b.emit("st.shared.b32", [b.address("shared", mine_word), b.register(b.const(U32, 0))])
    b.warp_barrier()
    for field, operands in fields:
        b.emit(f"tensormap.replace.tile.{field}", [stage, *operands], 0, ctx.leader)
    b.warp_barrier()
    publish = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
    b.emit(publish, [b.address("global", address), stage, Imm(MAP_BYTES)])
    acquire_map(ctx, address)
    b.close_scope()
    if ctx.num_warps > 1:
        ctx.jump(done, [])
        ctx.place(done)
    ctx.set(op.result, [address])


@lowers("async_copy.made_descriptor", target="nvidia")
def lower_made_descriptor(ctx: Lowering, op: Any) -> None:
    """The address of a map that is there."""
    if _room(op) not in _rooms(ctx.function):
        hint = "ml.make_tensor_descriptor with the same desc_ptr"
        raise CompilationError("descriptor", "nothing makes a descriptor in this room", op.loc, hint=hint)
    address = map_address(ctx, op)
    acquire_map(ctx, address)
    ctx.set(op.result, [address])


def _fields(ctx: Lowering, op: Any) -> list[tuple[str, list[Operand]]]:
    """(field and types, operands) of every edit; registers are filled before the branch."""
    b: PtxBuilder = ptx_builder(ctx)
    t = op.type
    try:
        plan = box_plan(t.layout, t.block_shape, t.dtype.itemsize)
    except ValueError as error:
        raise CompilationError("tma-block", str(error), op.loc) from error
    rank = len(plan.box)
    sizes, strides = op.shape[:rank], op.shape[rank:]
    tail = "shared::cta.b1024"

    def word(lane: Lane) -> Reg:
        return b.register(Lane(U32, lane.reg, lane.off, uniform=lane.uniform))

    out: list[tuple[str, list[Operand]]] = [
        (f"global_address.{tail}.b64", [b.register(b.bitcast(ctx.scalar(op.ptr), U64))]),
        (f"rank.{tail}.b32", [word(b.const(U32, rank - 1))]),
        (f"elemtype.{tail}.b32", [Imm(_element(t.dtype))]),
        (f"interleave_layout.{tail}.b32", [Imm(0)]),
        (f"swizzle_mode.{tail}.b32", [Imm(_SWIZZLES[plan.swizzle])]),
        (f"fill_mode.{tail}.b32", [Imm(1 if op.padding == "nan" else 0)]),
    ]
    for i in range(rank):
        d = rank - 1 - i
        out.append((f"box_dim.{tail}.b32", [Imm(i), word(b.const(U32, plan.box[d]))]))
        out.append((f"global_dim.{tail}.b32", [Imm(i), word(ctx.scalar(sizes[d]))]))
        out.append((f"element_stride.{tail}.b32", [Imm(i), word(b.const(U32, 1))]))
        if i:
            step = b.times(b.bitcast(ctx.scalar(strides[d]), U64), t.dtype.itemsize)
            out.append((f"global_stride.{tail}.b64", [Imm(i - 1), b.register(step)]))
    return out


def _element(dtype: DType) -> int:
    """The element type's number in tensormap.replace; types that the engine only moves count as unsigned of their width."""
    return _ELEMENTS.get(dtype.name, 0 if dtype.bits == 8 else 1)
