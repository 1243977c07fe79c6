"""Barriers as words of shared memory, to which waves add and at which they look.

**The word.** A phase of N arrivals takes the word from 0 to 2^31, the next one from there to 2^32 = 0: bit 31 is the parity of the phase under
way. One arrival is worth ``unit = 2^31 // N``, a multiple of 16, so that each of a task's n waves (a power of two) adds ``unit / n`` when it
arrives *for itself*: no wave speaks for others, and nobody has to meet before. Bytes that are announced are subtracted, bytes that have landed
are added; being less than ``unit / n`` in all, they delay the end of a phase until the last one is there and cannot bring it about early. Where
N is no power of two a rest is missing to 2^31: whoever finds that its addition has made the sum ``N * unit`` adds the rest.

**Order.** What a wave did to shared memory before is done before it adds (``lgkmcnt``; the hardware keeps the order of a wave's accesses to
LDS anyway); stores to global memory are seen by the other waves of a workgroup, which share its first-level cache, without a wait. A waiting
wave looks, sleeps for 64 clocks, looks again.

Barriers of hardware (``s_barrier``) know no subset of a workgroup's waves: named barriers and the syncs inside a task are words too, of which a
wave waits for the parity to change.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.builder.builder import AmdgcnBuilder
from mimw.codegen.amdgcn.builder.memory import shared_address
from mimw.codegen.amdgcn.lower import watch
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import LANE, WARP, Lane, as_u32
from mimw.codegen.lowering import Lowering, Shared, lowers
from mimw.codegen.machine import Block, Edge, Imm, Operand, Symbol
from mimw.diagnostics import CompilationError, InternalError
from mimw.ir.core import OpBase, Value
from mimw.ir.ops.barrier import BarrierAllocOp, BarrierRemoteViewOp, BarrierViewOp, NamedArriveOp, NamedWaitOp
from mimw.ir.types import I1, I32, U32, BarrierType

_FULL = 1 << 31
_MOST_WAVES = 16
_COUNTED = 32
"""Threads of one warp, as counts of named barriers and of barriers that every thread arrives on have them, whatever the target's width."""


class Word:
    """A barrier's word: its address, and what arrivals on it are worth."""

    __slots__ = ("address", "rest", "unit")

    def __init__(self, address: Lane, arrivals: int) -> None:
        self.address = address
        self.unit = _FULL // arrivals // _MOST_WAVES * _MOST_WAVES
        self.rest = _FULL - arrivals * self.unit

    def add(self, b: AmdgcnBuilder, amount: Lane, guard: Lane | None = None, wants_old: bool = False) -> Lane | None:
        """One lane of the wave adds; with `wants_old` the word before that, one in the wave."""
        b.emit("p_wait_lgkm", [Imm(0)])
        one = b.both(first_lane(b), guard)
        place, offset = shared_address(b, self.address)
        if not self.rest and not wants_old:
            b.emit("ds_add_u32", [place, b.vector(amount), *offset], 0, one)
            return None
        old = b.reg("v32")
        b.emit("ds_add_rtn_u32", [old, place, b.vector(amount), *offset], 1, one, [b.vector(b.const(U32, 0))])
        found = Lane(U32, old, uniform=LANE)
        if self.rest:
            reached = b.bit_and(b.add(found, amount), _FULL - 1)
            last = b.both(one, b.compare("eq", reached, b.const(U32, _FULL - self.rest)))
            b.emit("ds_add_u32", [place, b.vector(b.const(U32, self.rest)), *offset], 0, last)
        return Lane(U32, b.reg_of(b.pure("v_readfirstlane_b32", U32, [old], WARP, "s32")), uniform=WARP)

    def look(self, b: AmdgcnBuilder) -> Lane:
        """The word as it is now, one in the wave."""
        place, offset = shared_address(b, self.address)
        found = b.reg("v32")
        b.emit("ds_read_b32", [found, place, *offset], 1)
        word = b.reg("s32")
        b.emit("v_readfirstlane_b32", [word, found], 1)
        return Lane(U32, word, uniform=WARP)


def first_lane(b: AmdgcnBuilder) -> Lane:
    """True in lane 0 of every wave."""
    return b.pure("s_mov_b64", I1, [Imm(1)], LANE, "mask")


def share(ctx: Lowering, total: int) -> Lane:
    """This wave's part of a number that the task's waves split: the first takes what is left over."""
    b = amdgcn_builder(ctx)
    each, rest = divmod(total, ctx.num_warps)
    if not rest:
        return b.const(U32, each)
    first = b.compare("eq", b.uniform_warp_id(), b.const(I32, 0))
    return b.select(first, b.const(U32, each + rest), b.const(U32, each))


def spin(ctx: Lowering, word: Word, before: Lane, site: watch.Site | None = None) -> None:
    """Wait until bit 31 of the word is not that of `before`. The block ends; lowering goes on in the next. `site`: who says so if that never
    comes, in a build that explains hangs."""
    b = amdgcn_builder(ctx)
    patience = watch.Patience(ctx)
    again, sleep, done = Block("wait", patience.parameters), Block("sleep"), Block("waited")
    expected = b.register(before)
    shared_address(b, word.address)  # ahead of the loop
    ctx.jump(again, patience.start)
    ctx.place(again)
    b.open_loop()
    mixed = b.op("xor", U32, word.look(b), Lane(U32, expected, uniform=WARP))
    changed = b.compare("lt", Lane(I32, b.register(mixed), uniform=WARP), b.const(I32, 0))
    ctx.branch(changed, Edge(done, []), Edge(sleep, []))
    ctx.place(sleep)
    b.emit("s_sleep", [Imm(1)])
    patience.go_round(ctx, again, site)
    b.close_loop()
    ctx.place(done)


# ------------------------------------------------------------------------------------------------------------ mbarriers


def word_of(ctx: Lowering, barrier: Value) -> Word:
    """The word of one barrier."""
    t = barrier.type
    assert isinstance(t, BarrierType)
    return Word(ctx.shared[barrier].address, t.arrive_count)


@lowers("barrier.alloc", target="amd")
def lower_alloc(ctx: Lowering, op: Any) -> None:
    """An address; the kernel's frame zeroes the words."""
    ctx.shared[op.result] = Shared(ctx.b.plus(ctx.b.shared_base(), op.offset))


@lowers("barrier.view", target="amd")
def lower_view(ctx: Lowering, op: Any) -> None:
    """8 bytes each, of which the first 4 are used."""
    b = ctx.b
    ctx.shared[op.result] = Shared(b.add(ctx.shared[op.barriers].address, b.times(as_u32(ctx.scalar(op.index)), 8)))


@lowers("barrier.wait", target="amd")
def lower_wait(ctx: Lowering, op: Any) -> None:
    """Look until the phase of that parity is complete: until the one under way has the other parity."""
    b = amdgcn_builder(ctx)
    b.finish_copies()
    pred = ctx.scalar(op.pred) if op.pred is not None else b.const(I1, 1)
    if pred.reg is None and not pred.off:
        return
    before = b.shift(as_u32(ctx.scalar(op.phase)), 31)
    word = word_of(ctx, op.barrier)
    site = None
    if ctx.hang is not None:
        site = watch.site_of(ctx, ctx.hang.site("mbarrier", op), word.address, as_u32(ctx.scalar(op.phase)))
    if pred.reg is None:
        spin(ctx, word, before, site)
        return
    b.register(before)
    wanted, done = Block("wait_if"), Block("go_on")
    ctx.branch(pred, Edge(wanted, []), Edge(done, []))
    ctx.place(wanted)
    b.open_scope()
    spin(ctx, word, before, site)
    ctx.jump(done, [])
    b.close_scope()
    ctx.place(done)


@lowers("barrier.parity", target="amd")
def lower_parity(ctx: Lowering, op: Any) -> None:
    """Bit 31. A wave that looks later sees the same: the phase does not end before it has arrived."""
    b = amdgcn_builder(ctx)
    found = b.shift(word_of(ctx, op.barrier).look(b), -31)
    ctx.set(op.result, [Lane(I32, b.register(found), uniform=WARP)])


@lowers("barrier.arrive", target="amd")
def lower_arrive(ctx: Lowering, op: Any) -> None:
    """Each wave adds its part of `count` arrivals; on a barrier of threads those of its own."""
    b = amdgcn_builder(ctx)
    b.finish_copies()
    word = word_of(ctx, op.barrier)
    arrivals = op.count * (_COUNTED * ctx.num_warps if _per_thread(op.barrier) else 1)
    amount = arrivals * word.unit // ctx.num_warps & 0xFFFFFFFF
    word.add(b, b.const(U32, amount), ctx.scalar(op.pred) if op.pred is not None else None)


@lowers("barrier.expect", target="amd")
def lower_expect(ctx: Lowering, op: Any) -> None:
    """An arrival, less the bytes that are to come."""
    b = amdgcn_builder(ctx)
    word = word_of(ctx, op.barrier)
    part = word.unit // ctx.num_warps
    if op.bytes >= part:
        raise CompilationError(
            "not-yet",
            f"a barrier of {op.barrier.type.arrive_count} arrivals cannot count {op.bytes} bytes here",
            op.loc,
        )
    amount = b.sub(b.const(U32, part), share(ctx, op.bytes))
    word.add(b, amount, ctx.scalar(op.pred) if op.pred is not None else None)


def land(ctx: Lowering, barrier: Value, bytes_: int | Lane, guard: Lane | None = None) -> None:
    """This wave's part of a copy of so many bytes is in shared memory (where `guard` holds)."""
    b = amdgcn_builder(ctx)
    if isinstance(bytes_, Lane):
        bytes_ = bytes_.off if bytes_.reg is None else bytes_
    if isinstance(bytes_, int):
        part = share(ctx, bytes_)
    else:  # multiples of 16, so that any number of waves divides them
        part = b.shift(bytes_, 1 - ctx.num_warps.bit_length())
    word_of(ctx, barrier).add(b, part, guard)


def _per_thread(value: Value) -> bool:
    """Whether every thread arrives on a barrier by itself."""
    op = value.defining_op
    while isinstance(op, (BarrierViewOp, BarrierRemoteViewOp)):
        op = op.barriers.defining_op
    return isinstance(op, BarrierAllocOp) and op.per_thread


# ------------------------------------------------------------------------------------------- named barriers, tasks, fences


def meet(ctx: Lowering, place: Lane) -> None:
    """The waves of a task wait for each other at a word of their own."""
    b = amdgcn_builder(ctx)
    word = Word(place, ctx.num_warps)
    old = word.add(b, b.const(U32, word.unit), wants_old=True)
    assert old is not None
    spin(ctx, word, old)


def check_named(ops: list[OpBase]) -> None:
    """One number has one count: the word says how far a phase is, not how many it is for. A run-time number may be any."""
    counts: dict[int, NamedArriveOp | NamedWaitOp] = {}
    for op in ops:
        if not isinstance(op, (NamedWaitOp, NamedArriveOp)):
            continue
        key = -1 if op.id is not None else op.number
        clash = [o for k, o in counts.items() if o.count != op.count and (k == key or -1 in (k, key))]
        if clash:
            raise CompilationError(
                "not-yet",
                f"a named barrier counts {op.count} threads here and {clash[0].count} elsewhere: not there yet",
                op.loc,
            )
        counts.setdefault(key, op)


def _named(ctx: Lowering, op: Any) -> tuple[Word, Lane]:
    """The word of a named barrier, and what a wave adds."""
    b = amdgcn_builder(ctx)
    if b.named_words is None:
        raise InternalError("named barriers have no words", op.loc)
    if op.count % _COUNTED:
        raise CompilationError("bad-argument", f"a named barrier counts whole warps, not {op.count} threads", op.loc)
    if op.id is not None:
        place = b.add(b.named_words, b.times(as_u32(ctx.scalar(op.id)), 4))
    else:
        place = b.plus(b.named_words, 4 * op.number)
    word = Word(place, op.count // _COUNTED)
    return word, b.const(U32, word.unit)


@lowers("barrier.named_wait", target="amd")
def lower_named_wait(ctx: Lowering, op: Any) -> None:
    """Be counted, wait for the others."""
    amdgcn_builder(ctx).finish_copies()
    word, amount = _named(ctx, op)
    b = amdgcn_builder(ctx)
    old = word.add(b, amount, wants_old=True)
    assert old is not None
    site = None
    if ctx.hang is not None:
        number = ctx.hang.site("named", op, threads=op.count)
        site = watch.site_of(ctx, number, word.address, b.const(U32, 0))
    spin(ctx, word, old, site)


@lowers("barrier.named_arrive", target="amd")
def lower_named_arrive(ctx: Lowering, op: Any) -> None:
    """Be counted, go on."""
    amdgcn_builder(ctx).finish_copies()
    word, amount = _named(ctx, op)
    word.add(amdgcn_builder(ctx), amount)


@lowers("barrier.fence", target="amd")
def lower_fence(ctx: Lowering, op: Any) -> None:
    """What this wave wrote is where others see it, and what it reads from here on is new (LLVM's memory model for gfx942)."""
    b = amdgcn_builder(ctx)
    scope: list[Operand] = [Symbol(word) for word in (("sc0", "sc1") if op.scope == "sys" else ("sc1",))]
    b.emit("buffer_wbl2", scope)
    b.emit("p_wait_vm", [Imm(0)])
    b.emit("buffer_inv", [*scope])


@lowers("barrier.fence_async_shared", target="amd")
def lower_fence_async_shared(ctx: Lowering, op: Any) -> None:
    """Nothing: there is one way to shared memory."""
    del ctx, op


__all__ = ["Word", "check_named", "land", "meet", "spin", "word_of"]
