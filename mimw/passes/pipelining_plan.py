"""The new loop of a pipelined one: what is copied ahead, what must run early for it, prologue, trips, epilogue.

`Plan` copies tiles by cp.async, or through registers where there is no such copy; `pipelining` says what loops become and in which order.
"""

from __future__ import annotations

from mimw.ir.builder import Builder
from mimw.ir.core import Block, OpBase, Region, Value
from mimw.ir.ops.arith import CastOp, ConstantOp
from mimw.ir.ops.async_copy import AsyncLoadOp, CommitGroupOp, WaitGroupOp
from mimw.ir.ops.barrier import CtaSyncOp, FenceAsyncSharedOp
from mimw.ir.ops.control import ForOp, IfOp, InlinedOp, WhileOp, YieldOp
from mimw.ir.ops.memory import LoadOp, LocalAllocOp, LocalStoreOp, LocalViewOp
from mimw.ir.ops.mma import AsInflightOp, AsyncDotOp, AsyncDotWaitOp
from mimw.ir.ops.tensor import SplatOp
from mimw.ir.rewriter import clone
from mimw.ir.types import I1, I32, MemDescType, TensorType, Type, element_of
from mimw.passes.facts import Facts
from mimw.passes.fusion import is_zero


class Plan:
    """One loop: what is copied ahead, what must run early for it, and the new loop."""

    def __init__(self, loop: ForOp, stages: int, facts: Facts) -> None:
        self.loop = loop
        self.block = loop.body.block
        self.stages: int = stages
        self.facts = facts
        self.copies: list[tuple[OpBase, LocalAllocOp]] = []
        self.casts: dict[OpBase, CastOp] = {}
        """What becomes of a loaded tile on its way into the buffer."""
        self.slice: set[OpBase] = set()
        self.early_args: list[int] = []
        self.refusals: list[str] = []
        self.in_flight = False
        self.peels = False
        self.waiting: list[tuple[Value, Value, OpBase]] = []

    # What can be done

    def obstacle(self) -> str:
        """Why the loop cannot be pipelined; empty when it can."""
        for op in self.block.ops:
            if isinstance(op, (ForOp, WhileOp)):
                return f"it holds another loop (line {op.loc.line})"
            if isinstance(op, (IfOp, InlinedOp)) and _leaves(op):
                return f"it may be left early (line {op.loc.line})"
        terminator = self.block.terminator
        if not isinstance(terminator, YieldOp):
            return "its body does not end normally"
        self._find()
        if not self.copies:
            return "; ".join(self.refusals) or "no operand of its products comes straight from memory"
        self.in_flight = self._can_stay_in_flight()
        self.distance = self.stages - 2 if self.in_flight else self.stages - 1
        if self.distance < 1:
            self.in_flight, self.distance = False, self.stages - 1
        return ""

    def choose_slots(self, most: int) -> None:
        """One slot where two would leave no room for a second CTA beside this one in `most` bytes of shared memory, or where tiles are cast: what
        is loaded ahead then waits in registers until all have read the slot."""
        if self.casts or 2 * self.stages * sum(buffer_bytes(alloc) for _, alloc in self.copies) > most:
            self.stages = 1

    def _find(self) -> None:
        """Collect the loads that can be copied ahead; why not, of the others."""
        for op in self.block.ops:
            if isinstance(op, LocalAllocOp) and op.src is not None:
                self._consider(op)

    def _consider(self, alloc: LocalAllocOp) -> None:
        """Take a load that goes straight (through registers also by way of a cast) into a buffer, when its addresses can be known ahead."""
        assert alloc.src is not None
        load = cast = alloc.src.defining_op
        if self.peels and isinstance(cast, CastOp) and cast.result.users == [alloc]:
            load = cast.src.defining_op
        if not isinstance(load, LoadOp) or load.parent is not self.block:
            return
        why = self._copy_obstacle(load, alloc if load is cast else cast)
        if not why:
            why = self._run_early([v for v in (load.ptr, load.mask) if v is not None])
            if not why:
                self.copies.append((load, alloc))
                if isinstance(cast, CastOp):
                    self.casts[load] = cast
                return
        self.refusals.append(f"the load in line {load.loc.line} cannot be copied ahead: {why}")

    def _copy_obstacle(self, load: LoadOp, user: OpBase | None) -> str:
        if load.result.users != [user]:
            return "its value is used in registers too"
        if load.volatile:
            return "it is volatile"
        if load.other is not None and not is_zero(load.other):
            return "cp.async can only fill with zeros, and `other` is not zero"
        bits = self.facts.vector_width(load.ptr, load.mask) * _bits(load.result)
        if bits < 32:
            return f"its accesses are {max(bits, 8) // 8} bytes wide and cp.async needs 4 (unknown alignment or contiguity)"
        return ""

    def _run_early(self, values: list[Value]) -> str:
        """Have what these values depend on computed ahead; why that cannot be, empty when it can."""
        early, args = self._closure(values)
        bad = next((op for op in early if not op.spec.pure or op.regions), None)
        if bad is not None:
            return f"the address depends on {bad.name} in line {bad.loc.line}"
        self.slice |= early
        self.early_args = sorted(set(self.early_args) | args)
        return ""

    def _closure(self, values: list[Value]) -> tuple[set[OpBase], set[int]]:
        """The ops of the body and the carried values that these depend on, over all trips."""
        ops: set[OpBase] = set()
        args: set[int] = set()
        terminator = self.block.terminator
        assert terminator is not None
        todo = list(values)
        while todo:
            v = todo.pop()
            if v.owner is self.block:
                if v.index and v.index - 1 not in args:
                    args.add(v.index - 1)
                    todo.append(terminator.operands[v.index - 1])
            else:
                op = v.defining_op
                if op is not None and op.parent is self.block and op not in ops:
                    ops.add(op)
                    todo.extend(op.operands)
        return ops, args

    def _can_stay_in_flight(self) -> bool:
        """One product whose accumulator is carried and touched by nothing else, in a body that prints nothing: a call beside a
        product in flight makes the assembler wait after each one."""
        if any(
            effect.space == "debug" for op in self.block.ops for inner in op.walk() for effect in inner.spec.effects
        ):
            return False
        dots = [op for op in self.block.ops if isinstance(op, AsyncDotOp)]
        if len(dots) != 1 or self.stages < 3:
            return False
        dot = dots[0]
        acc = dot.acc
        if acc.owner is not self.block or acc.users != [dot] or len(dot.result.users) != 1:
            return False
        if not isinstance(dot.a.type, MemDescType):
            return False
        wait = dot.result.users[0]
        staged = {alloc.result for _, alloc in self.copies}
        if (
            not isinstance(wait, AsyncDotWaitOp)
            or len(wait.operands) != 1
            or not _from(dot.a, staged)
            or not _from(dot.b, staged)
        ):
            return False
        users = wait.outs[0].users
        return (
            len(users) == 1
            and users[0] is self.block.terminator
            and users[0].operands.index(wait.outs[0]) == acc.index - 1
        )

    # The new loop

    def rewrite(self) -> None:
        """Build rings, prologue, the new loop and its epilogue in place of the old loop."""
        loop = self.loop
        outer = loop.parent
        assert outer is not None
        b = Builder(outer, loop.loc, anchor=loop)
        rings = [self._ring(b, alloc) for _, alloc in self.copies]
        early = {self.block.args[i + 1]: loop.inits[i] for i in self.early_args}
        iv = loop.lower
        for slot in range(self.distance):
            early = self._copy_ahead(b, rings, b.constant(slot, I32), iv, loop.upper, early)
            self._store_waiting(b)
            iv = b.elementwise("arith.add", iv, loop.step)
        new = self._peeled_loop(b, rings, iv, early) if self.peels else self._loop(b, rings, iv, early)
        self._after(b, new)
        for old, out in zip(loop.outs, self.results, strict=True):
            old.replace_by(out)
        loop.erase()

    def _ring(self, b: Builder, alloc: LocalAllocOp) -> Value:
        t = alloc.type
        if self.stages == 1:
            value = b.insert(LocalAllocOp(None, t, loc=alloc.loc)).result
            value.name = alloc.result.name
            return value
        ring = MemDescType((self.stages, *t.shape), t.dtype, t.space, t.layout, (self.stages, *t.shape))
        value = b.insert(LocalAllocOp(None, ring, waited=alloc.waited, loc=alloc.loc)).result
        value.name = alloc.result.name or (alloc.src.name if alloc.src is not None else "")
        return value

    def _copy_ahead(
        self,
        b: Builder,
        rings: list[Value],
        slot: Value,
        iv: Value,
        upper: Value,
        early: dict[Value, Value],
        always: bool = False,
    ) -> dict[Value, Value]:
        """Emit the slice and the copies for the trip of `iv`, if there is one (`always`: there is); the early carried values of the
        trip after."""
        mapping = dict(early)
        mapping[self.block.args[0]] = iv
        for op in self.block.ops:
            if op in self.slice:
                clone = b.insert(copy_of(op, mapping))
                for old, new in zip(op.results, clone.results, strict=True):
                    mapping[old] = new
        exists = None if always else b.elementwise(self._inside(), iv, upper)
        for (load, _), ring in zip(self.copies, rings, strict=True):
            assert isinstance(load, LoadOp)
            loc = b.loc
            b.loc = load.loc
            ptr = mapping.get(load.ptr, load.ptr)
            mask = self._mask(b, exists, None if load.mask is None else mapping.get(load.mask, load.mask), ptr.type)
            if self.stages == 1:
                tile = b.insert(
                    LoadOp(ptr, mask, None, load.cache, load.eviction, loc=b.loc, result_types=[load.result.type])
                ).result
                self.waiting.append((ring, tile, load))
            else:
                dst = b.insert(LocalViewOp(ring, slot, loc=b.loc)).result
                b.insert(AsyncLoadOp(ptr, dst, mask, None, load.cache, load.eviction, loc=b.loc))
            b.loc = loc
        if self.stages > 1:
            b.insert(CommitGroupOp(loc=b.loc))
        terminator = self.block.terminator
        assert terminator is not None
        return {
            self.block.args[i + 1]: mapping.get(terminator.operands[i], terminator.operands[i]) for i in self.early_args
        }

    def _store_waiting(self, b: Builder) -> None:
        """Put what was loaded ahead into the one slot."""
        for ring, tile, load in self.waiting:
            cast = self.casts.get(load)
            if cast is not None:
                tile = b.insert(CastOp(tile, cast.dtype, cast.rounding, cast.saturate, loc=cast.loc)).result
            b.insert(LocalStoreOp(ring, tile, loc=b.loc))
        self.waiting = []

    def _inside(self) -> str:
        step = self.loop.step.defining_op
        backwards = isinstance(step, ConstantOp) and step.value < 0
        return "arith.gt" if backwards else "arith.lt"

    def _mask(self, b: Builder, exists: Value | None, mask: Value | None, ptr_type: Type) -> Value | None:
        if exists is None:
            return mask
        if not isinstance(ptr_type, TensorType):
            return exists if mask is None else b.elementwise("arith.and", mask, exists)
        t = ptr_type.with_element(I1)
        everywhere = b.insert(SplatOp(exists, t.shape, loc=b.loc, result_types=[t])).result
        return everywhere if mask is None else b.elementwise("arith.and", mask, everywhere)

    def _loop(self, b: Builder, rings: list[Value], iv_ahead: Value, early: dict[Value, Value]) -> ForOp:
        loop = self.loop
        inits = list(loop.inits)
        self.acc = -1
        if self.in_flight:
            dot = next(op for op in self.block.ops if isinstance(op, AsyncDotOp))
            self.acc = dot.acc.index - 1
            inits[self.acc] = b.insert(AsInflightOp(inits[self.acc], loc=dot.loc)).result
        early_keys = list(early)
        slots = [b.constant(0, I32), b.constant(self.distance % self.stages, I32)] if self.stages > 1 else []
        inits += [early[k] for k in early_keys] + [iv_ahead, *slots]
        body = Block([loop.lower.type, *[v.type for v in inits]])
        for arg, old in zip(body.args, self.block.args, strict=False):
            arg.name = old.name
        new = b.insert(
            ForOp(loop.lower, loop.upper, loop.step, inits, Region(body), loop.num_stages, loop.unroll, loc=loop.loc)
        )
        self._fill(body, rings, early_keys)
        return new

    def _fill(self, body: Block, rings: list[Value], early_keys: list[Value]) -> None:
        loop = self.loop
        count = len(loop.inits)
        b = Builder(body, loop.loc)
        mapping = dict(zip(self.block.args, body.args, strict=False))
        early = {k: body.args[1 + count + i] for i, k in enumerate(early_keys)}
        if self.stages > 1:
            iv_ahead, read_slot, write_slot = body.args[-3:]
            read_slot.name, write_slot.name = "slot", "slot_ahead"
            b.insert(WaitGroupOp(self.distance - 1, loc=loop.loc))
        else:
            iv_ahead = read_slot = write_slot = body.args[-1]
        early = self._copy_ahead(b, rings, write_slot, iv_ahead, loop.upper, early)
        self._trip(b, rings, read_slot, mapping)
        terminator = self.block.terminator
        assert terminator is not None
        b.loc = loop.loc
        self._store_waiting(b)
        ahead = b.elementwise("arith.add", iv_ahead, loop.step)
        values = [mapping.get(v, v) for v in terminator.operands] + [early[k] for k in early_keys]
        values.append(ahead)
        if self.stages > 1:
            values += [self._next_slot(b, read_slot), self._next_slot(b, write_slot)]
        b.insert(YieldOp(values, loc=terminator.loc))

    def _peeled_loop(self, b: Builder, rings: list[Value], iv_ahead: Value, early: dict[Value, Value]) -> IfOp:
        """All trips but the last, counted by the one that is copied ahead; then the last one, if there is any."""
        loop = self.loop
        count, keys = len(loop.inits), list(early)
        slots = [b.constant(0, I32), b.constant(self.distance % self.stages, I32)] if self.stages > 1 else []
        inits = [*loop.inits, *early.values(), loop.lower, *slots]
        # A second counter that wrapped round would start far too early.
        further = b.elementwise("arith.lt" if self._inside() == "arith.gt" else "arith.gt", iv_ahead, loop.lower)
        first = b.elementwise("arith.select", further, iv_ahead, loop.upper)
        body = Block([loop.lower.type, *[v.type for v in inits]])
        for arg, old in zip(body.args[1:], self.block.args[1:], strict=False):
            arg.name = old.name
        new = b.insert(
            ForOp(first, loop.upper, loop.step, inits, Region(body), loop.num_stages, loop.unroll, loc=loop.loc)
        )
        inside = Builder(body, loop.loc)
        if self.stages > 1:
            inside.insert(WaitGroupOp(0, loc=loop.loc))
        ahead = dict(zip(keys, body.args[1 + count :], strict=False))
        mapping = dict(zip(self.block.args, [body.args[1 + count + len(keys)], *body.args[1:]], strict=False))
        ahead = self._copy_ahead(inside, rings, body.args[-1], body.args[0], loop.upper, ahead, always=True)
        values = self._values(inside, rings, body.args[-2], mapping)
        self._store_waiting(inside)
        values += [*(ahead[k] for k in keys), body.args[0]]
        values += [self._next_slot(inside, slot) for slot in body.args[-2:]] if slots else []
        inside.insert(YieldOp(values, loc=loop.loc))
        return self._last_trip(b, rings, new)

    def _last_trip(self, b: Builder, rings: list[Value], new: ForOp) -> IfOp:
        """The trip that copies nothing ahead, where there is one."""
        loop = self.loop
        count = len(loop.inits)
        outs = new.outs[:count]
        sides = Block([]), Block([])
        yes = Builder(sides[0], loop.loc)
        if self.stages > 1:
            yes.insert(WaitGroupOp(0, loc=loop.loc))
        read_slot = new.outs[-2] if self.stages > 1 else new.outs[-1]
        iv = new.outs[-3] if self.stages > 1 else new.outs[-1]
        mapping = dict(zip(self.block.args, [iv, *outs], strict=True))
        yes.insert(YieldOp(self._values(yes, rings, read_slot, mapping), loc=loop.loc))
        Builder(sides[1], loop.loc).insert(YieldOp(list(outs), loc=loop.loc))
        runs = b.elementwise(self._inside(), loop.lower, loop.upper)
        types = tuple(v.type for v in outs)
        return b.insert(IfOp(runs, Region(sides[0]), Region(sides[1]), types, loc=loop.loc))

    def _values(self, b: Builder, rings: list[Value], read_slot: Value, mapping: dict[Value, Value]) -> list[Value]:
        """Emit a trip; what the original loop carries into the next."""
        self._trip(b, rings, read_slot, mapping)
        b.loc = self.loop.loc
        terminator = self.block.terminator
        assert terminator is not None
        return [mapping.get(v, v) for v in terminator.operands]

    def _trip(self, b: Builder, rings: list[Value], read_slot: Value, mapping: dict[Value, Value]) -> None:
        """Emit what a trip does with operands that are there; `mapping` gets its values."""
        buffers = {alloc: ring for (_, alloc), ring in zip(self.copies, rings, strict=True)}
        elsewhere = {*(load for load, _ in self.copies), *self.casts.values()}
        for op in self.block.ops:
            if op in elsewhere or op is self.block.terminator or isinstance(op, (FenceAsyncSharedOp, CtaSyncOp)):
                continue
            if isinstance(op, LocalAllocOp) and op in buffers:
                ring = buffers[op]
                mapping[op.result] = (
                    ring if self.stages == 1 else b.insert(LocalViewOp(ring, read_slot, loc=op.loc)).result
                )
                continue
            if self._replaces(b, op, read_slot, mapping):
                continue
            clone = b.insert(copy_of(op, mapping, self._types(op, mapping)))
            if self.in_flight and isinstance(op, AsyncDotWaitOp):
                clone.attrs["pendings"] = 1
            for old, new in zip(op.results, clone.results, strict=True):
                mapping[old] = new

    def _replaces(self, b: Builder, op: OpBase, slot: Value, mapping: dict[Value, Value]) -> bool:
        """Emit something else for an op of the trip in `slot`; whether that was done."""
        return False

    def _types(self, op: OpBase, mapping: dict[Value, Value]) -> list[Type] | None:
        if not self.in_flight or not isinstance(op, AsyncDotWaitOp):
            return None
        return [mapping[v].type for v in op.srcs]

    def _next_slot(self, b: Builder, slot: Value) -> Value:
        following = b.elementwise("arith.add", slot, b.constant(1, I32))
        wraps = b.elementwise("arith.eq", following, b.constant(self.stages, I32))
        return b.elementwise("arith.select", wraps, b.constant(0, I32), following)

    def _after(self, b: Builder, new: ForOp | IfOp) -> None:
        """Nothing may be in flight after the loop: its buffers' bytes may be used for something else."""
        self.results = list(new.outs[: len(self.loop.inits)])
        if self.stages > 1:
            b.insert(WaitGroupOp(0, loc=self.loop.loc))
        if self.in_flight:
            self.results[self.acc] = b.insert(AsyncDotWaitOp([self.results[self.acc]], 0, loc=self.loop.loc)).outs[0]


def _leaves(op: OpBase) -> bool:
    """Whether a branch holds a break, continue or return that leaves the loop's body."""
    return any(inner.spec.name in ("control.break", "control.continue", "control.return") for inner in op.walk())


def buffer_bytes(alloc: LocalAllocOp) -> int:
    """Bytes of a buffer."""
    layout = alloc.type.layout
    assert layout is not None
    return layout.size * alloc.type.dtype.itemsize


def _bits(v: Value) -> int:
    return getattr(element_of(v.type), "bits", 64)


def _from(v: Value, buffers: set[Value]) -> bool:
    """Whether a memdesc is one of the buffers or a view of one."""
    while v not in buffers:
        op = v.defining_op
        if op is None or not op.operands or not isinstance(op.operands[0].type, MemDescType):
            return False
        v = op.operands[0]
    return True


def copy_of(op: OpBase, mapping: dict[Value, Value], types: list[Type] | None = None) -> OpBase:
    """A copy of an op on mapped operands; `types` replace the results' types."""
    copy = clone(op, mapping)
    for i, r in enumerate(copy.results):
        r.type = types[i] if types is not None else _retyped(r.type, copy)
        if isinstance(r.type, MemDescType) and "type" in copy.attrs:
            copy.attrs["type"] = r.type
    return copy


def _retyped(t: Type, op: OpBase) -> Type:
    """A view of a ring's slot keeps the ring's allocation shape; everything else keeps its type."""
    src = op.operands[0].type if op.operands else None
    if isinstance(t, MemDescType) and isinstance(src, MemDescType):
        return MemDescType(t.shape, t.dtype, t.space, t.layout, src.alloc_shape)
    return t
