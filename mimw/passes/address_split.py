"""Pointer tiles become one pointer, the same for all elements, plus a tile of small offsets.

    splat(p) + (splat(u) + x) * splat(s)       becomes       splat(p + u * s) + x * s

The scalar sum is made in 64 bits, the tile keeps 32: where x * s provably lies in [0, 2^31) bytes, an access takes a scalar base and a 32-bit
offset, and a loop that steps through memory moves the base alone. The new address is the old one modulo 2^64. One assumption, beside those of
`facts`: where sums and products of i32 make an offset that is used, none of them wraps (the tile simulator reports `wrapped-offset`);
other types are taken apart only where ranges prove that. The ranges of offsets are proved without that assumption, so that what
is masked never reaches memory. What cannot be proved stays as it is. Afterwards loops carry the moved pointer instead of the distance.

Runs before layouts are chosen. Targets that add 64-bit addresses for nothing do without it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from mimw.ir.builder import Builder
from mimw.ir.core import Block, Module, OpBase, Value
from mimw.ir.ops.arith import CastOp, ConstantOp
from mimw.ir.ops.control import BreakOp, ContinueOp, ForOp, WhileOp, YieldOp
from mimw.ir.ops.memory import PtrAddOp
from mimw.ir.ops.tensor import SplatOp
from mimw.ir.rewriter import clone
from mimw.ir.types import I32, I64, DType, PointerType, TensorType, Type, element_of, shape_of
from mimw.passes.canonicalize import erase_dead
from mimw.passes.fact import dtype_range, step_of
from mimw.passes.facts import Facts, compute
from mimw.target import Target

NAME = "address-split"

REACH = 1 << 31
"""Bytes that an offset may reach from its base: buffer instructions keep the upper half of 32 bits for what is masked."""

_SHAPES = ("tensor.expand_dims", "tensor.broadcast", "tensor.reshape", "tensor.trans", "tensor.convert_layout")


def run(module: Module, target: Target) -> None:
    """Split all pointer tiles of the kernel."""
    if not target.has("scalar_bases"):
        return
    function = module.function
    splitter = _Splitter(compute(function))
    for op in list(function.walk()):
        if isinstance(op, PtrAddOp) and isinstance(op.result.type, TensorType):
            splitter.rewrite(op)
    erase_dead(function.block)
    for op in list(function.walk()):
        if isinstance(op, ForOp):
            _carry_pointers(op)


class _Split:
    """A tile as the sum of a scalar (i64 or a pointer; None: 0), a number, and an i32 tile in [lo, hi] (None: 0)."""

    __slots__ = ("hi", "lane", "lo", "number", "uniform")

    def __init__(self, uniform: Value | None, number: int, lane: Value | None, lo: int = 0, hi: int = 0) -> None:
        self.uniform = uniform
        self.number = number
        self.lane = lane
        self.lo = lo
        self.hi = hi


class _Splitter:
    """Splits by value; what a split needs is computed where the value is."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.offsets: dict[Value, _Split | None] = {}
        self.pointers: dict[Value, _Split | None] = {}

    # Pointers

    def rewrite(self, op: PtrAddOp) -> None:
        """Put an addition into the form of the module's docstring, if that can be proved."""
        base, offset = self.pointer(op.ptr), self.offset(op.offset)
        if base is None or offset is None:
            return
        b = Builder(op.parent, op.loc, op)  # type: ignore[arg-type]
        lane = _sum(b, base, offset)
        if lane is None:
            return
        size = step_of(op.result.type)
        number = offset.number
        if lane.lo < 0:  # the lowest element becomes the base
            number += lane.lo
            lane = _shifted(b, lane)
        if (lane.hi + 1) * size > REACH:
            return
        pointer = base.uniform
        assert pointer is not None
        if offset.uniform is not None:
            pointer = b.insert(PtrAddOp(pointer, offset.uniform, loc=b.loc)).result
        if number:
            pointer = b.insert(PtrAddOp(pointer, b.constant(number, I64), loc=b.loc)).result
        found = b.insert(SplatOp(pointer, shape_of(op.result.type), loc=b.loc)).result
        if lane.lane is not None:
            found = b.insert(PtrAddOp(found, lane.lane, loc=b.loc)).result
            found.name = op.result.name
        self.pointers[found] = _Split(pointer, 0, lane.lane, lane.lo, lane.hi)
        op.result.replace_by(found)
        op.erase()

    def pointer(self, value: Value) -> _Split | None:
        """A tile of pointers; None where it is no such sum."""
        if value not in self.pointers:
            self.pointers[value] = self._pointer(value)
        return self.pointers[value]

    def _pointer(self, value: Value) -> _Split | None:
        op = value.defining_op
        if isinstance(op, SplatOp):
            return _Split(op.src, 0, None)
        if op is None or op.name not in _SHAPES:
            return None
        src = self.pointer(op.operands[0])
        return None if src is None else _reshaped(op, src)

    # Offsets

    def offset(self, value: Value) -> _Split | None:
        """A tile of integers; None where nothing helps."""
        if value not in self.offsets:
            self.offsets[value] = self._offset(value) or self._whole(value)
        return self.offsets[value]

    def _offset(self, value: Value) -> _Split | None:
        op = value.defining_op
        if isinstance(op, ConstantOp):
            return _Split(None, int(op.value), None)
        if isinstance(op, SplatOp):
            return _Split(_wide(op), 0, None)
        if op is None or not _is_integer(value.type):
            return None
        if op.name in _SHAPES:
            src = self.offset(op.operands[0])
            return None if src is None else _reshaped(op, src)
        rule = _RULES.get(op.name)
        return None if rule is None else rule(self, op)

    def _whole(self, value: Value) -> _Split | None:
        """The tile itself, narrowed to 32 bits, where its range allows that."""
        fact = self.facts.of(value)
        if fact.lo is None or fact.hi is None or not _fits(fact.lo, fact.hi, I32):
            return None
        return _Split(None, 0, self._narrow(value), fact.lo, fact.hi)

    def _narrow(self, value: Value) -> Value:
        if element_of(value.type) is I32:
            return value
        b = _after(value)
        op = value.defining_op
        if isinstance(op, SplatOp):
            return b.insert(SplatOp(b.insert(CastOp(op.src, I32, loc=b.loc)).result, op.shape, loc=b.loc)).result
        return b.insert(CastOp(value, I32, loc=b.loc)).result

    def add(self, op: OpBase) -> _Split | None:
        """Both sides side by side."""
        a, c = (self.offset(v) for v in op.operands)
        return self._sum_of(op, a, c, 1)

    def sub(self, op: OpBase) -> _Split | None:
        """The right side turned round."""
        a, c = (self.offset(v) for v in op.operands)
        if c is None:
            return None
        b = Builder(op.parent, op.loc, op)  # type: ignore[arg-type]
        uniform = None if c.uniform is None else b.elementwise("arith.neg", c.uniform)
        lane = None if c.lane is None else b.elementwise("arith.neg", c.lane)
        return self._sum_of(op, a, _Split(uniform, -c.number, lane, -c.hi, -c.lo), -1)

    def _sum_of(self, op: OpBase, a: _Split | None, c: _Split | None, sign: int) -> _Split | None:
        if a is None or c is None or not self._exact(op, lambda x, y: x + sign * y):
            return None
        b = Builder(op.parent, op.loc, op)  # type: ignore[arg-type]
        lane = _sum(b, a, c)
        if lane is None:
            return None
        return _Split(_total(b, a.uniform, c.uniform), a.number + c.number, lane.lane, lane.lo, lane.hi)

    def mul(self, op: OpBase) -> _Split | None:
        """A tile times what is the same everywhere."""
        for x, y in (op.operands, op.operands[::-1]):
            a, factor = self.offset(x), self.offset(y)
            if a is not None and factor is not None and factor.lane is None and self._exact(op, operator.mul):
                return self._times(op, a, factor, y)
        return None

    def _times(self, op: OpBase, a: _Split, factor: _Split, y: Value) -> _Split | None:
        b = Builder(op.parent, op.loc, op)  # type: ignore[arg-type]
        lane, lo, hi = a.lane, 0, 0
        if lane is not None:
            fact = self.facts.of(y)
            if fact.lo is None or fact.hi is None:
                return None
            ends = [p * q for p in (a.lo, a.hi) for q in (fact.lo, fact.hi)]
            lo, hi = min(ends), max(ends)
            if not _fits(lo, hi, I32) or not _fits(fact.lo, fact.hi, I32):
                return None
            lane = b.elementwise("arith.mul", lane, self._narrow(y))
        uniform = _product(b, a.uniform, factor.uniform)
        uniform = _total(b, uniform, _scaled(b, a.uniform, factor.number))
        uniform = _total(b, uniform, _scaled(b, factor.uniform, a.number))
        return _Split(uniform, a.number * factor.number, lane, lo, hi)

    def cast(self, op: OpBase) -> _Split | None:
        """Between integers, where the number stays the same."""
        fact = self.facts.of(op.operands[0])
        if not _is_integer(op.operands[0].type) or fact.lo is None or fact.hi is None:
            return None
        if not _fits(fact.lo, fact.hi, _element(op)):
            return None
        return self.offset(op.operands[0])

    def _exact(self, op: OpBase, compute: Callable[[int, int], int]) -> bool:
        """Whether a tile holds what `compute` makes of the numbers: modulo 2^64; in i32, which no offset that is used leaves; or by the ranges."""
        if _element(op).bits == 64 or _element(op) is I32:
            return True
        x, y = (self.facts.of(v) for v in op.operands)
        if x.lo is None or x.hi is None or y.lo is None or y.hi is None:
            return False
        ends = [compute(p, q) for p in (x.lo, x.hi) for q in (y.lo, y.hi)]
        return _fits(min(ends), max(ends), _element(op))


_RULES = {
    "arith.add": _Splitter.add,
    "arith.sub": _Splitter.sub,
    "arith.mul": _Splitter.mul,
    "arith.cast": _Splitter.cast,
}


def _element(op: OpBase) -> DType:
    e = element_of(op.results[0].type)
    assert isinstance(e, DType)
    return e


def _is_integer(t: Type) -> bool:
    e = element_of(t)
    return isinstance(e, DType) and e.kind in ("int", "uint")


def _fits(lo: int, hi: int, dtype: DType) -> bool:
    least, most = dtype_range(dtype)
    return least is not None and most is not None and least <= lo and hi <= most


def _after(value: Value) -> Builder:
    """Inserts where a value has just been made."""
    op = value.defining_op
    block, at = (value.owner, 0) if op is None else (op.parent, op.parent.ops.index(op) + 1)  # type: ignore[union-attr]
    assert isinstance(block, Block)
    return Builder(block, block.ops[at].loc if op is None else op.loc, block.ops[at])


def _wide(op: SplatOp) -> Value:
    """The number of a splat, in 64 bits."""
    if element_of(op.src.type) is I64:
        return op.src
    return Builder(op.parent, op.loc, op).insert(CastOp(op.src, I64, loc=op.loc)).result  # type: ignore[arg-type]


def _sum(b: Builder, a: _Split, c: _Split) -> _Split | None:
    """The tiles of both sides added, if 32 bits hold that."""
    lo, hi = a.lo + c.lo, a.hi + c.hi
    if not _fits(lo, hi, I32):
        return None
    if a.lane is None or c.lane is None:
        return _Split(None, 0, c.lane if a.lane is None else a.lane, lo, hi)
    return _Split(None, 0, b.elementwise("arith.add", a.lane, c.lane), lo, hi)


def _shifted(b: Builder, a: _Split) -> _Split:
    """The tile moved up so that it begins at 0; its range may then reach 2^32, which the caller refuses."""
    assert a.lane is not None
    up = b.constant(-a.lo, a.lane.type)  # wraps where that is 2^31, and the sum with it
    return _Split(None, 0, b.elementwise("arith.add", a.lane, up), 0, a.hi - a.lo)


def _total(b: Builder, a: Value | None, c: Value | None) -> Value | None:
    if a is None or c is None:
        return c if a is None else a
    return b.elementwise("arith.add", a, c)


def _product(b: Builder, a: Value | None, c: Value | None) -> Value | None:
    return None if a is None or c is None else b.elementwise("arith.mul", a, c)


def _scaled(b: Builder, a: Value | None, number: int) -> Value | None:
    if a is None or not number:
        return None
    return a if number == 1 else b.elementwise("arith.mul", a, b.constant(number, I64))


def _reshaped(op: OpBase, src: _Split) -> _Split:
    """The split of what an op that only moves elements gives."""
    if src.lane is None:
        return src
    new = clone(op, {op.operands[0]: src.lane})
    new.results[0].type = op.results[0].type.with_element(I32)  # type: ignore[union-attr]
    Builder(op.parent, op.loc, op).insert(new)  # type: ignore[arg-type]
    return _Split(src.uniform, src.number, new.results[0], src.lo, src.hi)


# --- loops


def _carry_pointers(loop: ForOp) -> None:
    """A carried distance that one pointer from outside is moved by becomes that pointer, moved."""
    block = loop.body.block
    inside = {region.block for op in loop.walk() for region in op.regions}
    last = block.terminator
    if not isinstance(last, YieldOp):
        return
    leaving = _leaving(block)
    for i, result in enumerate(loop.results):
        arg = block.args[1 + i]
        step = _step_of(arg, last, i)
        moved = [op for op in arg.users if isinstance(op, PtrAddOp) and op.offset is arg]
        kept = [op for op in leaving if op.operands[i] is arg]
        if step is None or result.users or not moved or len(kept) != len(leaving):
            continue
        if len(moved) + len(kept) + 1 != len(arg.users):
            continue
        pointer = moved[0].ptr
        if (
            isinstance(pointer.type, PointerType)
            and all(op.ptr is pointer for op in moved)
            and _home(pointer) not in inside
        ):
            _carry(loop, last, i, pointer, moved, step)


def _leaving(block: Block) -> list[OpBase]:
    """The `break` and `continue` of the loop whose body, or part of it, this is."""
    found: list[OpBase] = []
    for op in block.ops:
        if isinstance(op, (BreakOp, ContinueOp)):
            found.append(op)
        elif not isinstance(op, (ForOp, WhileOp)):
            for region in op.regions:
                found += _leaving(region.block)
    return found


def _step_of(arg: Value, last: YieldOp, index: int) -> Value | None:
    """What is added to a carried i64 in each trip, if nothing else happens to it."""
    following = last.operands[index]
    add = following.defining_op
    if arg.type is not I64 or add is None or add.name != "arith.add" or len(following.users) != 1:
        return None
    if last.operands.count(arg) or add.operands.count(arg) != 1:
        return None
    return add.operands[1 - add.operands.index(arg)]


def _home(value: Value) -> Block | None:
    """The block that a value is made in."""
    return value.owner.parent if isinstance(value.owner, OpBase) else value.owner


def _carry(loop: ForOp, last: YieldOp, index: int, pointer: Value, moved: list[PtrAddOp], step: Value) -> None:
    """Change the carried value `index` into the pointer."""
    place = len(loop.operands) - len(loop.results) + index
    before = Builder(loop.parent, loop.loc, loop)  # type: ignore[arg-type]
    init = loop.operands[place]
    start = init.defining_op
    if not (isinstance(start, ConstantOp) and start.value == 0):
        pointer = before.insert(PtrAddOp(pointer, init, loc=loop.loc)).result
    loop.set_operand(place, pointer)
    arg = loop.body.block.args[1 + index]
    arg.type = loop.results[index].type = pointer.type
    add = last.operands[index].defining_op
    assert add is not None
    b = Builder(add.parent, add.loc, add)  # type: ignore[arg-type]
    last.set_operand(index, b.insert(PtrAddOp(arg, step, loc=add.loc)).result)
    add.erase()
    for op in moved:
        op.result.replace_by(arg)
        op.erase()
