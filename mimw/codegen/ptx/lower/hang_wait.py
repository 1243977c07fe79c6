"""What a build that explains hangs emits: waits that give up, the record of one, guards of what a marked CTA must not do. See `hang`.

Assumes that the frame has initialised the marks and barriers (`init`) before any thread waits or arrives. Everything behind a failed poll is
in blocks of its own and keeps no register alive in front of it: addresses come from parameters, thread numbers from special registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering
from mimw.codegen.machine import Addr, Block, Edge, Imm, Reg, Sink, Special, Symbol, Terminator, Vec
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.codegen.ptx.lower.hang import SETTLE, PtxHangBuild
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.shared.hang import GRACE, MAX_RECORDS, RECORD, RECORDS, STATE
from mimw.diagnostics import InternalError
from mimw.ir.core import OpBase
from mimw.ir.types import I1, U32, U64

LOOK_EVERY = 16
"""Polls between two looks at the clock and the kernel's state, a power of two: thousands of warps must not all read one word at every poll."""
Try = Callable[[Reg], None]
"""Emits one poll, which sets the predicate when the wait is over."""


def build_of(ctx: Lowering) -> PtxHangBuild:
    """The build; only asked for where there is one."""
    if ctx.hang is None:
        raise InternalError("not a build that explains hangs", ctx.b.loc)
    return ctx.hang


# ------------------------------------------------------------------------------------------------------ the start, guards, the end


def init(ctx: Lowering) -> bool:
    """The leader clears the marks and initialises the mbarriers of named barriers; says whether there are any."""
    if ctx.hang is None:
        return False
    b, build = ptx_builder(ctx), build_of(ctx)
    for (_, count), offset in build.named.items():
        b.emit("mbarrier.init.shared::cta.b64", [_shared(b, offset), Imm(count)], 0, ctx.leader)
    b.emit("st.shared.b32", [_shared(b, build.mark), b.register(b.const(U32, 0))], 0, ctx.leader)
    return True


def alive(ctx: Lowering, guard: Lane | None) -> Lane | None:
    """`guard`, and that no wait of the CTA has given up: for arrivals, and for copies that count on a barrier."""
    if ctx.hang is None:
        return guard
    return ptx_builder(ctx).both(guard, Lane(I1, _unmarked(ctx)))


def settle(ctx: Lowering) -> None:
    """At the end of a thread: where a wait of its CTA has given up, what is on its way gets time to land."""
    build = build_of(ctx)
    if not build.loads:
        return
    b = ptx_builder(ctx)
    late, done = Block("settle"), Block("settled")
    b.block.term = Terminator([Edge(done, []), Edge(late, [])], _unmarked(ctx), False, b.loc)
    ctx.place(late)
    start = _clock(b)
    again = Block("settling")
    ctx.jump(again, [])
    ctx.place(again)
    b.emit("nanosleep.u32", [Imm(1000)])
    over = _later(b, _difference(b, _clock(b), start), SETTLE)
    b.block.term = Terminator([Edge(done, []), Edge(again, [])], over, False, b.loc)
    ctx.place(done)


def _shared(b: PtxBuilder, offset: int) -> Addr:
    return b.address("shared", b.plus(b.shared_base(), offset))


def _unmarked(ctx: Lowering) -> Reg:
    b, build = ptx_builder(ctx), build_of(ctx)
    marks, free = Reg("b32", "marks"), Reg("pred", "unmarked")
    b.emit("ld.volatile.shared.b32", [marks, _shared(b, build.mark)], 1)
    b.emit("setp.eq.u32", [free, marks, Imm(0)], 1)
    return free


def _clock(b: PtxBuilder) -> Reg:
    now = Reg("b64", "now")
    b.emit("mov.u64", [now, Special("%globaltimer")], 1)
    return now


def _difference(b: PtxBuilder, x: Reg, y: Reg) -> Reg:
    out = Reg("b64", "waited")
    b.emit("sub.s64", [out, x, y], 1)
    return out


def _later(b: PtxBuilder, time: Reg, limit: int) -> Reg:
    out = Reg("pred", "over")
    b.emit("setp.gt.s64", [out, time, Imm(limit)], 1)
    return out


def _parameter(b: PtxBuilder, name: str) -> Reg:
    out = Reg("b64", name)
    b.emit("ld.param.b64", [out, Addr(Symbol(name))], 1)
    return out


def _first_time(b: PtxBuilder) -> tuple[Reg, Reg]:
    """(when the first wait of the kernel gave up, whether one has)."""
    found, told = Reg("b64", "given_up"), Reg("pred", "told")
    b.emit("ld.volatile.global.b64", [found, Addr(_parameter(b, STATE))], 1)
    b.emit("setp.ne.u64", [told, found, Imm(0)], 1)
    return found, told


# -------------------------------------------------------------------------------------------------------------------------- waits


def poll(ctx: Lowering, emit_try: Try, site: int, place: Lane, phase: Lane, done: Block) -> None:
    """Poll until the wait is over or gives up, both of which go on in `done`, which the caller places.

    `place` is the barrier's address in shared memory, `phase` what the user waits for (32 bits each).
    """
    b, build = ptx_builder(ctx), build_of(ctx)
    began, tries = Reg("b64", "began"), Reg("b32", "tries")
    again, failed, look, stop = Block("wait", [began, tries]), Block("not_yet"), Block("look"), Block("give_up")
    ctx.jump(again, [Imm(0), Imm(0)])
    ctx.place(again)
    passed = Reg("pred", "passed")
    emit_try(passed)
    b.block.term = Terminator([Edge(done, []), Edge(failed, [])], passed, False, b.loc)
    b.open_scope()
    ctx.place(failed)
    following, looks = _count(ctx, tries)
    b.block.term = Terminator([Edge(look, []), Edge(again, [began, following])], looks, False, b.loc)
    ctx.place(look)
    now = _clock(b)
    is_first, since = Reg("pred", "first_look"), Reg("b64", "began")
    b.emit("setp.eq.u64", [is_first, began, Imm(0)], 1)
    b.emit("selp.b64", [since, now, began, is_first], 1)
    first, told = _first_time(b)
    over, ends = _later(b, _difference(b, now, since), build.timeout), Reg("pred", "ends")
    b.emit("or.pred", [ends, over, told], 1)
    b.block.term = Terminator([Edge(stop, []), Edge(again, [since, following])], ends, False, b.loc)
    ctx.place(stop)
    _stop_if_endless(b, first, told, now)
    _record(ctx, site, place, phase, since, now, done)
    b.close_scope()


def _count(ctx: Lowering, tries: Reg) -> tuple[Reg, Reg]:
    """(tries so far, whether it is time to look at the clock: at every `LOOK_EVERY`-th, and always once the CTA is marked)."""
    b = ptx_builder(ctx)
    following, low, due, looks = Reg("b32", "tries"), Reg("b32", "low"), Reg("pred", "due"), Reg("pred", "looks")
    b.emit("add.u32", [following, tries, Imm(1)], 1)
    b.emit("and.b32", [low, following, Imm(LOOK_EVERY - 1)], 1)
    b.emit("setp.eq.u32", [due, low, Imm(0)], 1)
    marked = b.register(b.invert(Lane(I1, _unmarked(ctx))))
    b.emit("or.pred", [looks, due, marked], 1)
    return following, looks


def held_up(ctx: Lowering, op: OpBase, emit_wait: Callable[[], None]) -> None:
    """A wait at the hardware's barrier of the cluster, which always ends: a record afterwards when somebody gave up in the meantime."""
    b, build = ptx_builder(ctx), build_of(ctx)
    since = _clock(b)
    emit_wait()
    site = build.site("cluster", op)
    late, done = Block("held_up"), Block("met")
    b.open_scope()
    first, told = _first_time(b)
    before, both = Reg("pred", "before"), Reg("pred", "held_up")
    b.emit("setp.lt.u64", [before, since, first], 1)
    b.emit("and.pred", [both, told, before], 1)
    b.block.term = Terminator([Edge(late, []), Edge(done, [])], both, False, b.loc)
    ctx.place(late)
    _record(ctx, site, b.shared_base(), b.const(U32, 0), since, _clock(b), done)
    b.close_scope()
    ctx.place(done)


def _stop_if_endless(b: PtxBuilder, first: Reg, told: Reg, now: Reg) -> None:
    """A loop that only a message ends comes to its wait again and again: long after the kernel gave up it is stopped by a store to address 0.

    A trap would do, but is an exit for ptxas, before which it waits for the products that are under way here (C7517, seen).
    """
    late, endless = _later(b, _difference(b, now, first), GRACE), Reg("pred", "endless")
    b.emit("and.pred", [endless, late, told], 1)
    b.comment("a loop goes on long after a wait gave up: stop the kernel")
    nowhere, zero = b.register(b.const(U64, 0)), b.register(b.const(U32, 0))
    b.emit("st.volatile.global.b32", [Addr(nowhere), zero], 0, Lane(I1, endless))


def _record(ctx: Lowering, site: int, place: Lane, phase: Lane, since: Reg, now: Reg, done: Block) -> None:
    """Lane 0 marks its warp, tells the kernel, and writes the record if the warp has written none; ends in a jump to `done`."""
    b, build = ptx_builder(ctx), build_of(ctx)
    thread, lane, warp, bit = (Reg("b32", name) for name in ("thread", "lane", "warp", "bit"))
    leads = Reg("pred", "leads")
    b.emit("mov.u32", [thread, Special("%tid.x")], 1)
    b.emit("and.b32", [lane, thread, Imm(31)], 1)
    b.emit("shr.u32", [warp, thread, Imm(5)], 1)
    b.emit("setp.eq.u32", [leads, lane, Imm(0)], 1)
    mark, claim, write = Block("mark"), Block("claim"), Block("record")
    b.block.term = Terminator([Edge(mark, []), Edge(done, [])], leads, False, b.loc)

    ctx.place(mark)
    state, before = _parameter(b, STATE), Reg("b64", "before")
    b.emit("atom.global.cas.b64", [before, Addr(state), b.register(b.const(U64, 0)), now], 1)
    one, marks, mine, fresh = Reg("b32", "one"), Reg("b32", "marks"), Reg("b32", "mine"), Reg("pred", "fresh")
    b.emit("mov.u32", [one, Imm(1)], 1)
    b.emit("shl.b32", [bit, one, warp], 1)
    b.emit("atom.shared.or.b32", [marks, _shared(b, build.mark), bit], 1)
    b.emit("and.b32", [mine, marks, bit], 1)
    b.emit("setp.eq.u32", [fresh, mine, Imm(0)], 1)
    b.block.term = Terminator([Edge(claim, []), Edge(done, [])], fresh, False, b.loc)

    ctx.place(claim)
    index, room = Reg("b32", "index"), Reg("pred", "room")
    b.emit("atom.global.add.u32", [index, Addr(state, 8), one], 1)
    b.emit("setp.lt.u32", [room, index, Imm(MAX_RECORDS)], 1)
    b.block.term = Terminator([Edge(write, []), Edge(done, [])], room, False, b.loc)

    ctx.place(write)
    offset = Reg("b32", "offset")
    b.emit("sub.u32", [offset, b.register(place), b.register(b.shared_base())], 1)
    _write(b, site, index, [warp, offset, b.register(phase)], since, now)
    ctx.jump(done, [])


def _write(b: PtxBuilder, site: int, index: Reg, words: list[Reg], since: Reg, now: Reg) -> None:
    """One record; its first word makes it valid, after all others can be seen by the host."""
    step, at = Reg("b64", "step"), Reg("b64", "record")
    b.emit("mul.wide.u32", [step, index, Imm(RECORD)], 1)
    b.emit("add.s64", [at, _parameter(b, RECORDS), step], 1)
    for i, word in enumerate(words, 1):
        b.emit("st.global.b32", [Addr(at, 4 * i), word])
    for i, axis in enumerate("xyz"):
        place = Reg("b32", f"cta_{axis}")
        b.emit("mov.u32", [place, Special(f"%ctaid.{axis}")], 1)
        b.emit("st.global.b32", [Addr(at, 16 + 4 * i), place])
    b.emit("st.global.v2.b64", [Addr(at, 32), Vec([since, now])])
    b.emit("fence.acq_rel.sys", [])
    b.emit("st.volatile.global.b32", [Addr(at), b.register(b.const(U32, site + 1))])


# ----------------------------------------------------------------------------------------------------------------- named barriers


def named_place(ctx: Lowering, op: Any) -> Lane:
    """Where the mbarrier lies that stands for a named barrier with the op's thread count."""
    b, build = ptx_builder(ctx), build_of(ctx)
    if op.id is None:
        return b.plus(b.shared_base(), build.named[op.number, op.count])
    number = b.bit_and(ctx.scalar(op.id), 15)
    number = Lane(U32, number.reg, number.off, uniform=number.uniform)
    return b.add(b.plus(b.shared_base(), build.named[0, op.count]), b.times(number, 8))


def named_arrive(ctx: Lowering, op: Any) -> None:
    """Every thread of the task arrives."""
    b = ptx_builder(ctx)
    place = b.address("shared", named_place(ctx, op))
    b.emit("mbarrier.arrive.shared::cta.b64", [Sink(), place], 1, alive(ctx, None))


def named_wait(ctx: Lowering, op: Any) -> None:
    """Every thread of the task arrives, and waits for the phase in which it did."""
    b, build = ptx_builder(ctx), build_of(ctx)
    lane = named_place(ctx, op)
    place = b.address("shared", lane)
    arrive, done = Block("arrive"), Block("waited")
    b.block.term = Terminator([Edge(arrive, []), Edge(done, [])], _unmarked(ctx), False, b.loc)
    ctx.place(arrive)
    b.open_scope()
    token = Reg("b64", "token")
    b.emit("mbarrier.arrive.shared::cta.b64", [token, place], 1)
    site = build.site("named", op, threads=op.count)
    opcode = "mbarrier.try_wait.shared::cta.b64"
    poll(ctx, lambda passed: b.emit(opcode, [passed, place, token], 1), site, lane, b.const(U32, 0), done)
    b.close_scope()
    ctx.place(done)
