"""Pipelined loops whose blocks come by TMA: each buffer becomes a ring of slots, each barrier an array with one for each slot.

Before (`blocks_by_tma`): a trip announces bytes on a barrier, starts the copies, waits. After: it starts the copies of the trip `distance` ahead,
into the slot of the trip before last, and waits for its own where it did before. Other warps may still read that slot: sync_insertion has them
meet before the elected thread announces the bytes.

Which phase to wait for is counted, since a barrier that is under way does not tell: `phases` holds the parity of every slot as a bit. It is read from
the barriers before the loop, while nothing is under way, and a slot's bit flips when its trip is over. All groups of copies go round together.
"""

from __future__ import annotations

from mimw.ir.builder import Builder
from mimw.ir.core import Block, OpBase, Region, Value
from mimw.ir.ops.async_copy import TmaLoadOp
from mimw.ir.ops.barrier import BarrierAllocOp, BarrierExpectOp, BarrierParityOp, BarrierViewOp, BarrierWaitOp
from mimw.ir.ops.control import ForOp, YieldOp
from mimw.ir.ops.memory import LocalAllocOp, LocalViewOp
from mimw.ir.ops.mma import AsInflightOp, AsyncDotOp, AsyncDotWaitOp
from mimw.ir.rewriter import walk_blocks
from mimw.ir.scratch import scratch_bytes
from mimw.ir.types import I32, BarrierType
from mimw.passes.facts import Facts
from mimw.passes.pipelining_plan import Plan, buffer_bytes, copy_of
from mimw.passes.shared_allocation import buffer_users


class _Group:
    """Copies on one barrier: `parity` is read, `expect` announces, `loads` copy, `wait` waits. `barriers`: the array in its place."""

    __slots__ = ("alloc", "barriers", "expect", "loads", "parity", "wait")

    def __init__(
        self,
        alloc: BarrierAllocOp,
        parity: BarrierParityOp,
        expect: BarrierExpectOp,
        loads: list[TmaLoadOp],
        wait: BarrierWaitOp,
    ) -> None:
        self.alloc = alloc
        self.parity = parity
        self.expect = expect
        self.loads = loads
        self.wait = wait
        self.barriers: Value = alloc.result


class TmaPlan(Plan):
    """One loop with copies by TMA. `most`: bytes of shared memory that its rings may take with all other buffers."""

    def __init__(self, loop: ForOp, stages: int, facts: Facts, most: int) -> None:
        super().__init__(loop, stages, facts)
        self.most = most
        self.groups: dict[OpBase, _Group] = {}

    # What can be done

    def _find(self) -> None:
        for op in self.block.ops:
            if isinstance(op, BarrierWaitOp):
                group = self._group(op)
                if group is not None:
                    self._take(group)
        self._fit()

    def _group(self, wait: BarrierWaitOp) -> _Group | None:
        """The copies of this loop that a wait ends, as `blocks_by_tma` makes them."""
        alloc = wait.barrier.defining_op
        if not isinstance(alloc, BarrierAllocOp):
            return None
        users = alloc.result.users
        parities = [u for u in users if isinstance(u, BarrierParityOp)]
        expects = [u for u in users if isinstance(u, BarrierExpectOp)]
        loads = [u for u in users if isinstance(u, TmaLoadOp)]
        plain = all(u.parent is self.block for u in users) and all(
            x.pred is None and x.multicast is None for x in loads
        )
        if not plain or len(parities) != 1 or len(expects) != 1 or len(users) != 3 + len(loads):
            return None
        return _Group(alloc, parities[0], expects[0], loads, wait)

    def _take(self, group: _Group) -> None:
        buffers = [load.dst.defining_op for load in group.loads]
        why = ""
        for load, buffer in zip(group.loads, buffers, strict=True):
            if not isinstance(buffer, LocalAllocOp) or buffer.parent is not self.block:
                why = "its buffer is not the loop's own"
            why = why or self._run_early([load.desc, *load.coords])
        if why:
            self.refusals.append(f"the load in line {group.loads[0].loc.line} cannot be copied ahead: {why}")
            return
        self.groups[group.wait] = group
        self.copies += [(load, b) for load, b in zip(group.loads, buffers, strict=True) if isinstance(b, LocalAllocOp)]

    def _fit(self) -> None:
        """Fewer slots where the rings would not fit beside the buffers that are alive with them."""
        mine = {alloc for _, alloc in self.copies}
        trip = sum(map(buffer_bytes, mine))
        others = max(map(scratch_bytes, self.block.ops))
        for block in walk_blocks(self._function()):
            for alloc in block.ops:
                if isinstance(alloc, LocalAllocOp) and alloc not in mine and self._alive_beside(alloc):
                    others += ring_bytes(alloc)
        while self.stages > 1 and others + self.stages * trip > self.most:
            self.stages -= 1
        if self.stages < 2:
            self.copies = []
            self.refusals.append("two slots do not fit into shared memory")

    def _function(self) -> Block:
        """The outermost block."""
        block = self.block
        while block.parent_op is not None and block.parent_op.parent is not None:
            block = block.parent_op.parent
        return block

    def _alive_beside(self, alloc: LocalAllocOp) -> bool:
        """Whether a buffer may be alive while the loop runs: unless it is made later, or all its uses are over."""
        home = self.loop.parent
        assert home is not None
        at = home.ops.index(self.loop)
        made = _place(alloc, home)
        if made > at:
            return False
        others_reach = not alloc.waited and any(
            u.name.startswith(("async_copy.tma", "cluster.")) for u in buffer_users(alloc.result)
        )
        return made < 0 or others_reach or any(_place(u, home) >= at for u in buffer_users(alloc.result))

    # The new loop

    def rewrite(self) -> None:
        """Build rings, barriers, prologue and the new loop in place of the old one."""
        loop = self.loop
        assert loop.parent is not None
        b = Builder(loop.parent, loop.loc, anchor=loop)
        rings = [self._ring(b, alloc) for _, alloc in self.copies]
        for group in self.groups.values():
            self._barriers(group)
        phases = self._phases(b)
        early = {self.block.args[i + 1]: loop.inits[i] for i in self.early_args}
        iv = loop.lower
        for slot in range(self.distance):
            early = self._start(b, rings, b.constant(slot, I32), iv, early, loop.lower if slot else None)
            iv = b.elementwise("arith.add", iv, loop.step)
        new = self._new_loop(b, rings, iv, early, phases)
        self.results = list(new.outs[: len(loop.inits)])
        if self.in_flight:
            self.results[self.acc] = b.insert(AsyncDotWaitOp([self.results[self.acc]], 0, loc=loop.loc)).outs[0]
        for old, out in zip(loop.outs, self.results, strict=True):
            old.replace_by(out)
        loop.erase()
        for group in self.groups.values():
            if not group.alloc.result.users:
                group.alloc.erase()

    def _barriers(self, group: _Group) -> None:
        """An array of barriers beside the one barrier."""
        old = group.alloc
        assert old.parent is not None
        array = BarrierAllocOp(BarrierType(self.stages, 1), loc=old.loc)
        old.parent.insert_before(old, array)
        array.result.name = old.result.name
        group.barriers = array.result

    def _phases(self, b: Builder) -> Value:
        """The parities of all slots, as bits."""
        group = next(iter(self.groups.values()))
        bits: Value | None = None
        for slot in range(self.stages):
            one = b.insert(BarrierViewOp(group.barriers, b.constant(slot, I32), loc=b.loc)).result
            parity = b.insert(BarrierParityOp(one, loc=b.loc)).result
            bit = b.elementwise("arith.shl", parity, b.constant(slot, I32))
            bits = bit if bits is None else b.elementwise("arith.or", bits, bit)
        assert bits is not None
        return bits

    def _start(
        self, b: Builder, rings: list[Value], slot: Value, iv: Value, early: dict[Value, Value], after: Value | None
    ) -> dict[Value, Value]:
        """Start the copies of the trip of `iv`, if there is one; the early carried values of the trip after. `iv` is one that comes after
        `after`, or has wrapped round: then there is none."""
        mapping = {**early, self.block.args[0]: iv}
        for op in self.block.ops:
            if op in self.slice:
                made = b.insert(copy_of(op, mapping))
                for old, new in zip(op.results, made.results, strict=True):
                    mapping[old] = new
        inside = self._inside()
        exists = b.elementwise(inside, iv, self.loop.upper)
        if after is not None:
            exists = b.elementwise("arith.and", exists, b.elementwise(inside, after, iv))
        ring_of = {alloc.result: ring for (_, alloc), ring in zip(self.copies, rings, strict=True)}
        saved = b.loc
        for group in self.groups.values():
            b.loc = group.expect.loc
            full = b.insert(BarrierViewOp(group.barriers, slot, loc=b.loc)).result
            b.insert(BarrierExpectOp(full, exists, group.expect.bytes, loc=b.loc))
            for load in group.loads:
                b.loc = load.loc
                dst = b.insert(LocalViewOp(ring_of[load.dst], slot, loc=b.loc)).result
                desc, coords = mapping.get(load.desc, load.desc), [mapping.get(c, c) for c in load.coords]
                b.insert(TmaLoadOp(desc, dst, full, exists, None, coords, load.eviction, loc=b.loc))
        b.loc = saved
        terminator = self.block.terminator
        assert terminator is not None
        return {
            self.block.args[i + 1]: mapping.get(terminator.operands[i], terminator.operands[i]) for i in self.early_args
        }

    def _new_loop(
        self, b: Builder, rings: list[Value], iv_ahead: Value, early: dict[Value, Value], phases: Value
    ) -> ForOp:
        loop = self.loop
        inits = list(loop.inits)
        if self.in_flight:
            dot = next(op for op in self.block.ops if isinstance(op, AsyncDotOp))
            self.acc = dot.acc.index - 1
            inits[self.acc] = b.insert(AsInflightOp(inits[self.acc], loc=dot.loc)).result
        slots = [b.constant(0, I32), b.constant(self.distance % self.stages, I32)]
        inits += [*early.values(), iv_ahead, *slots, phases]
        body = Block([loop.lower.type, *[v.type for v in inits]])
        for arg, old in zip(body.args, self.block.args, strict=False):
            arg.name = old.name
        new = b.insert(
            ForOp(loop.lower, loop.upper, loop.step, inits, Region(body), loop.num_stages, loop.unroll, loc=loop.loc)
        )
        self._fill_body(body, rings, list(early))
        return new

    def _fill_body(self, body: Block, rings: list[Value], early_keys: list[Value]) -> None:
        loop = self.loop
        count = len(loop.inits)
        b = Builder(body, loop.loc)
        mapping = dict(zip(self.block.args, body.args, strict=False))
        early = {k: body.args[1 + count + i] for i, k in enumerate(early_keys)}
        iv_ahead, slot, slot_ahead, phases = body.args[-4:]
        slot.name, slot_ahead.name, phases.name = "slot", "slot_ahead", "phases"
        early = self._start(b, rings, slot_ahead, iv_ahead, early, body.args[0])
        self.phase = b.elementwise("arith.and", b.elementwise("arith.shr", phases, slot), b.constant(1, I32))
        self._trip(b, rings, slot, mapping)
        b.loc = loop.loc
        terminator = self.block.terminator
        assert terminator is not None
        flipped = b.elementwise("arith.xor", phases, b.elementwise("arith.shl", b.constant(1, I32), slot))
        values = [mapping.get(v, v) for v in terminator.operands] + [early[k] for k in early_keys]
        values.append(b.elementwise("arith.add", iv_ahead, loop.step))
        values += [self._next_slot(b, slot), self._next_slot(b, slot_ahead), flipped]
        b.insert(YieldOp(values, loc=terminator.loc))

    def _replaces(self, b: Builder, op: OpBase, slot: Value, mapping: dict[Value, Value]) -> bool:
        group = self.groups.get(op)
        if group is not None:
            full = b.insert(BarrierViewOp(group.barriers, slot, loc=op.loc)).result
            b.insert(BarrierWaitOp(full, self.phase, None, loc=op.loc))
            return True
        return any(op is g.parity or op is g.expect for g in self.groups.values())


def _place(op: OpBase, block: Block) -> int:
    """The index in `block` of the op that is or holds `op`; -1 where it stands outside."""
    while op.parent is not block:
        if op.parent is None or op.parent.parent_op is None:
            return -1
        op = op.parent.parent_op
    return block.ops.index(op)


def ring_bytes(alloc: LocalAllocOp) -> int:
    """Bytes of a buffer, or of all slots of a ring."""
    t = alloc.type
    slots = 1
    if t.layout is not None:
        for n in t.shape[: len(t.shape) - len(t.layout.dims)]:
            slots *= n
    return slots * buffer_bytes(alloc)
