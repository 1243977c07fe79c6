"""Makes the program small and plain: folds, merges equal ops, drops what nobody needs, moves scalars out of loops.

One walk simplifies and merges; then branches with known conditions open up, carried values that nobody looks at go, dead ops go; again until
nothing changes. Tiles are not shared across a loop's boundary and not moved out of loops: that would hold registers through the
loop for what is cheap to compute again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mimw.ir.builder import Builder
from mimw.ir.core import Block, Module, OpBase, Value
from mimw.ir.ops.arith import ConstantOp
from mimw.ir.ops.control import ForOp, IfOp, WhileOp, YieldOp
from mimw.ir.ops.memory import LoadOp
from mimw.ir.types import TensorType
from mimw.passes.folding import constant_of, simplify
from mimw.target import Target

NAME = "canonicalize"
_ROUNDS = 8

Key = tuple[Any, ...]
Table = dict[Key, OpBase]


def run(module: Module, target: Target) -> None:
    """Rewrite in place until nothing changes."""
    body = module.function.block
    for _ in range(_ROUNDS):
        walk = _Walk()
        walk.block(body, {})
        changed = walk.changed
        changed |= _open_branches(body)
        changed |= trim(body)
        changed |= erase_dead(body)
        if not changed:
            return


# ----------------------------------------------------------------------------------------------- folding and merging


class _Walk:
    __slots__ = ("changed",)

    def __init__(self) -> None:
        self.changed = False

    def block(self, block: Block, table: Table) -> None:
        """Simplify, merge with an equal op that is visible here (`table`), move loop-invariant scalars out."""
        for op in list(block.ops):
            if op.parent is None:
                continue
            if self._simplified(op, block) or self._merged(op, table):
                self.changed = True
                continue
            if not op.regions:
                continue
            loop = isinstance(op, (ForOp, WhileOp))
            for region in op.regions:
                inner = {k: o for k, o in table.items() if not _is_tile(o)} if loop else dict(table)
                if op.spec.name == "task.partition":
                    inner = {}  # a task shares no registers with the code around it
                self.block(region.block, inner)
            if loop:
                self.changed |= _hoist(op)

    def _simplified(self, op: OpBase, block: Block) -> bool:
        if len(op.results) != 1 or not op.spec.pure or op.regions:
            return False
        found = simplify(op, Builder(block, op.loc, op))
        if found is None:
            return False
        if not found.name:
            found.name = op.results[0].name
        op.results[0].replace_by(found)
        op.erase()
        return True

    def _merged(self, op: OpBase, table: Table) -> bool:
        if not op.spec.pure or op.regions or not op.results or op.spec.name.startswith("control.for"):
            return False
        key = _key(op)
        earlier = table.get(key)
        if earlier is None:
            table[key] = op
            return False
        for r, e in zip(op.results, earlier.results, strict=True):
            r.replace_by(e)
        op.erase()
        return True


def _key(op: OpBase) -> Key:
    # repr tells 0.0 from -0.0, and 1 from 1.0 from True.
    attrs = tuple(repr(v) for v in op.attrs.values())
    return (op.spec.name, tuple(map(id, op.operands)), attrs, tuple(map(id, (r.type for r in op.results))))


def _is_tile(op: OpBase) -> bool:
    return any(isinstance(r.type, TensorType) for r in op.results)


def _hoist(loop: OpBase) -> bool:
    """Pure scalar ops of a loop's bodies that depend on nothing inside go before the loop."""
    outer = loop.parent
    assert outer is not None
    moved = False
    for region in loop.regions:
        block = region.block
        for op in list(block.ops):
            if not op.spec.pure or op.regions or _is_tile(op) or not op.results or isinstance(op, ConstantOp):
                continue
            if all(_outside(v, loop) for v in op.operands) and op.operands:
                block.ops.remove(op)
                outer.insert_before(loop, op)
                moved = True
    return moved


def _outside(v: Value, loop: OpBase) -> bool:
    block = v.owner.parent if isinstance(v.owner, OpBase) else v.owner
    while block is not None:
        op = block.parent_op
        if op is loop:
            return False
        block = op.parent if op is not None else None
    return True


# ------------------------------------------------------------------------------------------------------- branches


def _open_branches(block: Block) -> bool:
    """An `if` whose condition is known becomes the ops of the side that runs, when that side ends normally."""
    changed = False
    for op in list(block.ops):
        for region in op.regions:
            changed |= _open_branches(region.block)
        if not isinstance(op, IfOp):
            continue
        known = constant_of(op.cond)
        if known is None:
            continue
        side = (op.then if known else op.orelse).block
        last = side.terminator
        if not isinstance(last, YieldOp):
            continue
        for inner in side.ops[:-1]:
            inner.parent = block
        at = block.ops.index(op)
        block.ops[at:at] = side.ops[:-1]
        side.ops = [last]
        for r, v in zip(op.results, list(last.operands), strict=True):
            r.replace_by(v)
        op.erase()
        changed = True
    return changed


# -------------------------------------------------------------------------------------------- results nobody takes


def trim(block: Block) -> bool:
    """Carried values and branch results that nobody needs, and carried values that never change."""
    changed = False
    for op in list(block.ops):
        for region in op.regions:
            changed |= trim(region.block)
        if isinstance(op, (ForOp, WhileOp)):
            exits = list(_exits(op, ("control.yield", "control.continue", "control.break")))
            for i in reversed(range(len(op.results))):
                if _is_constant_carried(op, i, exits) or _is_dead_carried(op, i, exits):
                    _drop_carried(op, i, exits)
                    changed = True
        elif isinstance(op, IfOp):
            for i in reversed(range(len(op.results))):
                if not op.results[i].users:
                    _drop_branch_result(op, i)
                    changed = True
    return changed


def _exits(loop: OpBase, names: tuple[str, ...]) -> Iterable[OpBase]:
    """The terminators that carry a loop's values: its body's yield, and breaks and continues at any `if` depth."""
    body = loop.regions[-1].block
    if body.ops and body.ops[-1].spec.name == "control.yield":
        yield body.ops[-1]
    yield from _jumps(body, names[1:])


def _jumps(block: Block, names: tuple[str, ...]) -> Iterable[OpBase]:
    for op in block.ops:
        if op.spec.name in names:
            yield op
        if not isinstance(op, (ForOp, WhileOp)):
            for region in op.regions:
                yield from _jumps(region.block, names)


def _carried_args(loop: OpBase, index: int) -> list[Value]:
    first = 1 if isinstance(loop, ForOp) else 0
    return [region.block.args[first + index] for region in loop.regions]


def _init_index(loop: OpBase, index: int) -> int:
    return len(loop.operands) - len(loop.results) + index


def _is_constant_carried(loop: OpBase, index: int, exits: list[OpBase]) -> bool:
    """The value is what it was on entry, on every way round and out: everyone takes the initial value."""
    args = _carried_args(loop, index)
    init = loop.operands[_init_index(loop, index)]
    if not all(op.operands[index] is init or op.operands[index] in args for op in exits):
        return False
    loop.results[index].replace_by(init)
    for arg in args:
        arg.replace_by(init)
    return True


def _is_dead_carried(loop: OpBase, index: int, exits: list[OpBase]) -> bool:
    """Nobody takes the result, and inside it only serves to make its own next value."""
    if loop.results[index].users:
        return False
    todo = list(_carried_args(loop, index))
    seen: set[Value] = set(todo)
    while todo:
        v = todo.pop()
        for user in v.users:
            if user in exits:
                if any(w is v for i, w in enumerate(user.operands) if i != index):
                    return False
            elif not user.spec.pure or user.regions:
                return False
            else:
                for r in user.results:
                    if r not in seen:
                        seen.add(r)
                        todo.append(r)
    return True


def _drop_carried(loop: OpBase, index: int, exits: list[OpBase]) -> None:
    for op in exits:
        _drop_operand(op, index)
    dead = [arg for arg in _carried_args(loop, index) if arg.users]
    for arg in dead:  # what makes only its own next value, users first
        _erase_users(arg)
    _drop_operand(loop, _init_index(loop, index))
    for region in loop.regions:
        args = region.block.args
        del args[(1 if isinstance(loop, ForOp) else 0) + index]
        _renumber(args)
    del loop.results[index]
    _renumber(loop.results)


def _erase_users(v: Value) -> None:
    for user in list(v.users):
        if user.parent is None:
            continue
        for r in user.results:
            _erase_users(r)
        user.erase()


def _drop_branch_result(op: IfOp, index: int) -> None:
    for region in op.regions:
        last = region.block.terminator
        if isinstance(last, YieldOp):
            _drop_operand(last, index)
    del op.results[index]
    _renumber(op.results)
    types = op.attrs["types"]
    op.attrs["types"] = (*types[:index], *types[index + 1 :])


def _drop_operand(op: OpBase, index: int) -> None:
    """Remove one operand of the last (variadic) field."""
    op.operands[index].users.remove(op)
    del op.operands[index]
    op.segments = (*op.segments[:-1], op.segments[-1] - 1)


def _renumber(values: list[Value]) -> None:
    for i, v in enumerate(values):
        v.index = i


# ------------------------------------------------------------------------------------------------------- dead ops


def erase_dead(block: Block) -> bool:
    """Erase what has no effect and no user; loads that are not volatile count as having none."""
    changed = False
    for op in reversed(list(block.ops)):
        if op.parent is None:
            continue
        for region in op.regions:
            changed |= erase_dead(region.block)
        if not any(r.users for r in op.results) and _removable(op):
            op.erase()
            changed = True
    return changed


def _removable(op: OpBase) -> bool:
    if isinstance(op, LoadOp):
        return not op.volatile
    if not op.spec.pure:
        return False
    if isinstance(op, WhileOp):
        return False  # it may never end, and then nothing after it runs
    return all(
        inner.spec.name == "control.yield" if inner.spec.terminator else _removable(inner)
        for region in op.regions
        for inner in region.block.ops
    )
