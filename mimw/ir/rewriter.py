"""Small moves that passes are made of: replace, clone, walk, erase what is dead.

Knows no op. Uses stay true, since everything goes through the methods of `core`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mimw.ir.core import Argument, Block, Function, OpBase, Region, Value
from mimw.ir.opdef import Op


def replace(op: OpBase, values: Sequence[Value]) -> None:
    """Make every user of the op's results take `values` instead, and erase the op."""
    if len(values) != len(op.results):
        raise ValueError(f"{op.name} has {len(op.results)} results, {len(values)} values are to replace them")
    for r, v in zip(op.results, values, strict=True):
        r.replace_by(v)
    op.erase()


def clone(op: OpBase, values: dict[Value, Value]) -> OpBase:
    """A copy of an op and its regions, in no block yet.

    `values` maps operands to those of the copy (others stay) and gains the results' and the block arguments' copies.
    """
    new = object.__new__(type(op))
    assert isinstance(new, Op)
    new.attrs = dict(op.attrs)
    new.segments = op.segments
    new.loc = op.loc
    new.parent = None
    new.operands = [values.get(v, v) for v in op.operands]
    for v in new.operands:
        v.users.append(new)
    new.results = []
    for r in op.results:
        values[r] = new.add_result(r.type, r.name)
    new.regions = []
    for region in op.regions:
        copy = clone_region(region, values)
        copy.parent = new
        new.regions.append(copy)
    return new


def clone_region(region: Region, values: dict[Value, Value]) -> Region:
    """A copy of a region, in no op yet; `values` as in `clone`."""
    block = Block()
    for a in region.block.args:
        values[a] = block.add_arg(a.type, a.name)
    for op in region.block.ops:
        block.append(clone(op, values))
    return Region(block)


def clone_function(function: Function) -> Function:
    """A copy of a kernel that shares nothing that changes with it."""
    # Arguments too: passes give descriptors layouts.
    arguments = [Argument(a.name, a.type, a.divisor, a.loc, a.below) for a in function.arguments]
    new = Function(function.name, arguments, function.loc, function.num_warps, function.num_stages)
    new.options = dict(function.options)
    values: dict[Value, Value] = {}
    new.body = clone_region(function.body, values)
    return new


def walk_blocks(block: Block) -> Iterator[Block]:
    """A block and all blocks inside it, outer before inner."""
    yield block
    for op in list(block.ops):
        for region in op.regions:
            yield from walk_blocks(region.block)


def erase_dead(block: Block, removable: Callable[[OpBase], bool] | None = None) -> bool:
    """Erase ops whose results nobody uses, inner blocks included; by default those that are pure. Whether any went."""
    changed = False
    for op in reversed(list(block.ops)):
        for region in op.regions:
            changed |= erase_dead(region.block, removable)
        free = _is_pure(op) if removable is None else removable(op)
        if free and not any(r.users for r in op.results):
            op.erase()
            changed = True
    return changed


def _is_pure(op: OpBase) -> bool:
    """No effect of its own or of what it holds, and no exit out of it."""
    if not op.spec.pure:
        return False
    return all(_stays(inner) for region in op.regions for inner in region.block.ops)


def _stays(op: OpBase) -> bool:
    if op.spec.terminator:
        return op.spec.name == "control.yield"
    return _is_pure(op)
