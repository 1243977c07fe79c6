"""Removes values that loops and branches carry for nothing: results that no one reads and that the body does not need.

Tracing carries every name that a loop assigns; most are temporaries. What is left here is what the program uses.
"""

from __future__ import annotations

from collections.abc import Iterator

from mimw.ir.core import Block, Function, OpBase, Value
from mimw.ir.ops.control import ForOp, IfOp, InlinedOp, WhileOp


def prune(function: Function) -> None:
    """Drop dead carried values until there are none; structure and order stay."""
    ops = [op for op in function.walk() if isinstance(op, (ForOp, IfOp, InlinedOp, WhileOp))]
    ops.reverse()  # inner before outer
    changed = True
    while changed:
        changed = False
        for op in ops:
            changed |= _prune(op)


def _prune(op: OpBase) -> bool:
    changed = False
    for i in reversed(range(len(op.results))):
        if not op.results[i].users and _drop(op, i):
            changed = True
    return changed


def _drop(op: OpBase, i: int) -> bool:
    """Remove result `i` when its block arguments (of a loop) are only handed on to themselves."""
    loop = isinstance(op, (ForOp, WhileOp))
    exits = list(_exits(op))
    args: list[Value] = []
    if loop:
        shift = 1 if isinstance(op, ForOp) else 0
        args = [r.block.args[i + shift] for r in op.regions]
        for a in args:
            if any(not (u in exits and all(v is not a or k == i for k, v in enumerate(u.operands))) for u in a.users):
                return False
    for e in exits:
        _remove_operand(e, i)
    if loop:
        _remove_operand(op, i + (3 if isinstance(op, ForOp) else 0))
        for a in args:
            block = a.owner
            assert isinstance(block, Block)
            block.args.remove(a)
            _renumber(block.args)
    elif isinstance(op, (IfOp, InlinedOp)):
        types = op.types
        op.attrs["types"] = (*types[:i], *types[i + 1 :])
    del op.results[i]
    _renumber(op.results)
    return True


def _exits(op: OpBase) -> Iterator[OpBase]:
    """The terminators that give an op its results."""
    if isinstance(op, IfOp):
        for r in op.regions:
            if r.block.ops[-1].name == "control.yield":
                yield r.block.ops[-1]
    elif isinstance(op, InlinedOp):
        yield from _inside(op.body.block, ("control.return",), False)
    else:
        body = op.regions[-1].block
        if body.ops[-1].name == "control.yield":
            yield body.ops[-1]
        yield from _inside(body, ("control.break", "control.continue"), True)


def _inside(block: Block, names: tuple[str, ...], stop_at_loops: bool) -> Iterator[OpBase]:
    """Terminators of these names that belong to the construct around: not those of a construct inside."""
    for op in block.ops:
        if op.name in names:
            yield op
        elif isinstance(op, IfOp) or (not stop_at_loops and isinstance(op, (ForOp, WhileOp))):
            for r in op.regions:
                yield from _inside(r.block, names, stop_at_loops)


def _remove_operand(op: OpBase, index: int) -> None:
    op.operands[index].users.remove(op)
    del op.operands[index]
    op.segments = (*op.segments[:-1], op.segments[-1] - 1)


def _renumber(values: list[Value]) -> None:
    for k, v in enumerate(values):
        v.index = k
