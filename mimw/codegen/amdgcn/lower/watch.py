"""Waves that end before their time: the mark of a CTA whose assertion failed, and waits that give up.

**Who ends.** The *mark* is a word of shared memory, 0 until a wave of the CTA fails an assertion; whoever finds it set ends, behind an assertion and
at every wait for a word of shared memory. In a build that explains hangs (`codegen.shared.hang`) every sixteenth look of a wait that has to be
waited for is one at the clock, too, and at a word of the device's memory that the first wait to give up fills with the time: when the wait's own time
is over, or that word is set, the wave writes a record of where it waited, and ends. So all waves end sooner or later: the hardware's
barrier counts those that have ended as arrived (CDNA3 ISA, S_BARRIER), and loops end as in any kernel.

The clock is ``s_memrealtime``, which goes up by one every 10 nanoseconds on all of the device (100 MHz on MI300X and MI350X); records are in
nanoseconds.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.builder.builder import AmdgcnBuilder
from mimw.codegen.amdgcn.builder.memory import global_address, shared_address
from mimw.codegen.amdgcn.builder.printing import hidden_pointer, publish
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import CTA, LANE, WARP, Lane, Tile
from mimw.codegen.lowering import Lowering
from mimw.codegen.machine import Block, Edge, Imm, Reg, Terminator
from mimw.codegen.shared.hang import MAX_RECORDS, RECORD, RECORDS, STATE, HangBuild
from mimw.diagnostics import InternalError
from mimw.ir.core import Function
from mimw.ir.types import I1, I32, I64, U32

LOOK_EVERY = 16
"""Looks at a word between two at the clock and the kernel's state, a power of two: thousands of waves must not all read one word all the time."""
TICK = 10
"""Nanoseconds."""


class Site:
    """A wait that can be told of: its number, where its word lies in shared memory, the phase that the user waits for."""

    __slots__ = ("number", "phase", "place")

    def __init__(self, number: int, place: Lane, phase: Lane) -> None:
        self.number = number
        self.place = place
        self.phase = phase


def needs_mark(function: Function) -> bool:
    """Whether waves of the kernel may fail an assertion."""
    return any(op.name == "debug.device_assert" for op in function.walk())


def mark(ctx: Lowering, failed: Lane) -> None:
    """Lanes that have failed add to the mark; it is set when this returns."""
    b = amdgcn_builder(ctx)
    place, offset = shared_address(b, _place(b))
    b.emit("ds_add_u32", [place, b.vector(b.const(U32, 1)), *offset], 0, failed)
    b.emit("p_wait_lgkm", [Imm(0)])


def end_if_marked(ctx: Lowering) -> None:
    """End the wave if its CTA is marked; lowering goes on in a block for the others."""
    b = amdgcn_builder(ctx)
    ends, goes_on = Block("end"), Block("go_on")
    ctx.branch(_is_marked(b), Edge(ends, []), Edge(goes_on, []))
    ctx.place(ends)
    _end(ctx)
    ctx.place(goes_on)


def _is_marked(b: AmdgcnBuilder) -> Lane:
    """Whether the CTA is marked now, one in the wave."""
    place, offset = shared_address(b, _place(b))
    found = b.reg("v32")
    b.emit("ds_read_b32", [found, place, *offset], 1)
    return b.compare("ne", _first(b, found), b.const(U32, 0))


def _first(b: AmdgcnBuilder, found: Reg) -> Lane:
    """What a vector register holds in the wave's first lane, read here and now."""
    word = b.reg("s32")
    b.emit("v_readfirstlane_b32", [word, found], 1)
    return Lane(U32, word, uniform=WARP)


def _end(ctx: Lowering) -> None:
    """End the wave, with all that it has on its way done."""
    b = amdgcn_builder(ctx)
    b.emit("p_wait_vm", [Imm(0)])
    b.block.term = Terminator([], loc=b.loc)
    ctx.live = False


def _place(b: AmdgcnBuilder) -> Lane:
    if b.mark is None:
        raise InternalError("the kernel has no mark", b.loc)
    return b.const(U32, b.mark)


# --------------------------------------------------------------------------------------------------------------------- waits


class Patience:
    """What a wait keeps while it goes round: when it began to look at the clock (0: not yet) and how often it has looked at its word, as
    parameters of the loop's block. Without a build that explains hangs, nothing."""

    def __init__(self, ctx: Lowering) -> None:
        b = amdgcn_builder(ctx)
        self.build: HangBuild | None = ctx.hang
        self.parameters: list[Reg] = []
        if self.build is not None:
            self.parameters = [b.parameter(I64, WARP), b.parameter(U32, WARP)]

    @property
    def start(self) -> list[Reg | Imm]:
        """What the loop begins with."""
        return [Imm(0) for _ in self.parameters]

    def go_round(self, ctx: Lowering, again: Block, site: Site | None) -> None:
        """The word is not there yet: go to `again`, or end. A wait without a site ends and says nothing: others of its task do."""
        b = amdgcn_builder(ctx)
        if b.mark is not None:
            end_if_marked(ctx)
        if self.build is None:
            ctx.jump(again, [])
            return
        began, looks = Lane(I64, self.parameters[0], uniform=WARP), Lane(U32, self.parameters[1], uniform=WARP)
        look, give_up = Block("look"), Block("give_up")
        count = b.register(b.plus(looks, 1))
        due = b.compare("eq", b.bit_and(Lane(U32, count, uniform=WARP), LOOK_EVERY - 1), b.const(U32, 0))
        ctx.branch(due, Edge(look, []), Edge(again, [b.reg_of(began), count]))
        ctx.place(look)
        now = _clock(b)
        since = b.select(b.compare("eq", began, b.const(I64, 0)), now, began)
        limit = b.const(I64, self.build.timeout // TICK)
        over = b.compare("gt", b.sub(now, since), limit)
        ends = b.op("or", I1, over, _told(b))
        ctx.branch(ends, Edge(give_up, []), Edge(again, [b.register(since), count]))
        ctx.place(give_up)
        if site is not None:
            _record(b, site, since, now)
        _end(ctx)


def _clock(b: AmdgcnBuilder) -> Lane:
    now = b.reg("s64")
    b.emit("s_memrealtime", [now], 1)
    return Lane(I64, now, uniform=WARP)


def _told(b: AmdgcnBuilder) -> Lane:
    """Whether a wait of the kernel has given up."""
    halves = b.load("global", U32, hidden_pointer(b, STATE), 2, None, None, "volatile")
    low, high = (_first(b, b.vector(half)) for half in halves)
    return b.compare("ne", b.op("or", U32, low, high), b.const(U32, 0))


def _record(b: AmdgcnBuilder, site: Site, since: Lane, now: Lane) -> None:
    """The wave's first lane tells the kernel, and writes the record."""
    one = b.pure("s_mov_b64", I1, [Imm(1)], LANE, "mask")
    began, end = (b.words(b.times(t, TICK)) for t in (since, now))
    state = hidden_pointer(b, STATE)
    place, base, offset = global_address(b, state)
    swap = b.tuple_of([*end, b.const(U32, 0), b.const(U32, 0)])
    b.emit("global_atomic_cmpswap_x2", [place, swap, base, *offset], 0, one)
    place, base, offset = global_address(b, b.plus(state, 8))
    old, zero = b.reg("v32"), b.vector(b.const(U32, 0))
    b.emit("global_atomic_add_rtn", [old, place, b.vector(b.const(U32, 1)), base, *offset], 1, one, [zero])
    index = Lane(U32, old, uniform=LANE)
    room = b.both(one, b.compare("lt", index, b.const(U32, MAX_RECORDS)))
    at = b.add(hidden_pointer(b, RECORDS), b.widen_scaled(index, I64, RECORD))
    wave = b.valu("v_lshrrev_b32", U32, Imm(6), b.entry_register("v0", "v32", I32, LANE, "tid"))
    ctas = [b.bitcast(b.program_id(axis), U32) for axis in range(3)]
    words: Tile = [wave, site.place, site.phase, *ctas, b.const(U32, 0), *began, *end]
    for i in range(0, len(words), 4):
        b.store("global", b.plus(at, 4 + 4 * i), words[i : i + 4], room, "volatile")
    publish(b)
    b.store("global", at, [Lane(U32, None, site.number + 1, uniform=CTA)], room, "volatile")


def site_of(ctx: Lowering, number: int, place: Lane, phase: Lane) -> Site:
    """A wait's site, with what it needs in registers ahead of the wait's loop."""
    b = amdgcn_builder(ctx)
    kept = [Lane(U32, b.register(x), uniform=x.uniform) if x.reg is not None else x for x in (place, phase)]
    return Site(number, kept[0], kept[1])
