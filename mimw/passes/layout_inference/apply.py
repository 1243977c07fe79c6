"""Writes the solver's answer into the IR: types with layouts, copies of free values, `tensor.convert_layout` ops.

A conversion stands right before its first user, or, when that is inside a loop that its source is not in, before the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mimw.diagnostics import InternalError
from mimw.ir.core import Block, Module, OpBase, Value
from mimw.ir.layout import Layout
from mimw.ir.ops.tensor import ConvertLayoutOp
from mimw.ir.types import InflightType, TensorType, Type
from mimw.passes.layout_inference.rules import rule_of, tile_of

if TYPE_CHECKING:
    from mimw.passes.layout_inference.infer import Graph, Node


def apply(module: Module, graph: Graph) -> None:
    """Rewrite the function in place."""
    run = _Apply(module, graph)
    run.block(module.function.block)
    run.sweep()


class _Apply:
    __slots__ = ("copies", "done", "free_ops", "graph", "module", "originals")

    def __init__(self, module: Module, graph: Graph) -> None:
        self.module = module
        self.graph = graph
        self.originals: dict[Value, Value] = {}  # a copy of a free value -> the value that the graph knows
        self.copies: dict[tuple[Value, Layout], Value] = {}  # free values by layout
        self.done: dict[tuple[Value, Layout], list[Value]] = {}  # conversions by source and layout
        self.free_ops: list[OpBase] = [
            op for op in module.function.walk() if op.results and op.results[0] in graph.free
        ]

    def block(self, block: Block) -> None:
        """All ops of a block, in order."""
        graph = self.graph
        for op in list(block.ops):
            if op.results and op.results[0] in graph.free:
                continue  # on demand
            node = graph.by_op.get(op)
            if node is not None:
                self._op(op, node)
            elif op.name == "mma.async_dot_wait":
                for r in op.results:
                    r.type = with_layout(r.type, graph.layout_of(r))
            elif op.regions and not op.spec.effects and op.name.startswith("control."):
                self._control(op)
            elif op.name == "task.partition":
                for region in op.regions:
                    graph.push("condition", [])
                    self.block(region.block)
                    graph.pop()
            elif op.spec.terminator:
                self._terminator(op)

    def _op(self, op: OpBase, node: Node) -> None:
        primary = node.variable.layout
        for i, v in enumerate(op.operands):
            if tile_of(v.type) is not None:
                wanted = node.rule.operand(op, i, primary)
                if wanted is None:
                    wanted = self.graph.default_layout(v) if v in self.graph.free else _layout(v)
                self._set(op, i, wanted, op)
        for i, r in enumerate(op.results):
            if tile_of(r.type) is not None:
                r.type = with_layout(r.type, node.rule.result(op, i, primary))

    def _control(self, op: OpBase) -> None:
        graph = self.graph
        first = len(op.operands) - len(op.results)
        loop = op.name in ("control.for", "control.while")
        for i, r in enumerate(op.results):
            if tile_of(r.type) is None:
                continue
            layout = graph.layout_of(r)
            r.type = with_layout(r.type, layout)
            if loop:
                self._set(op, first + i, layout, op)
        if "types" in op.attrs:
            op.attrs["types"] = tuple(r.type for r in op.results)
        carried = [graph.values[r][0] if r in graph.values else None for r in op.results]
        kind = "loop" if loop else "if" if op.name == "control.if" else "inlined"
        for i, region in enumerate(op.regions):
            if loop:
                args = region.block.args
                for arg, r in zip(args[len(args) - len(op.results) :], op.results, strict=True):
                    arg.type = r.type
            condition = op.name == "control.while" and i == 0
            graph.push("condition" if condition else kind, carried)
            self.block(region.block)
            graph.pop()

    def _terminator(self, op: OpBase) -> None:
        for i, (_, node) in enumerate(zip(list(op.operands), self.graph.targets(op), strict=False)):
            if node is not None:
                self._set(op, i, node.variable.layout, op)

    def _set(self, op: OpBase, index: int, wanted: Layout, user: OpBase) -> None:
        v = op.operands[index]
        new = self._free(v, wanted) if v in self.graph.free else self._converted(v, wanted, user)
        if new is not v:
            op.set_operand(index, new)

    # ------------------------------------------------------------------------------------------------------- free values

    def _free(self, value: Value, layout: Layout) -> Value:
        """The free value in a layout: the op itself the first time, copies after that."""
        key = (value, layout)
        found = self.copies.get(key)
        if found is not None:
            return found
        op = value.defining_op
        if op is None:
            raise InternalError(f"{value} is not made by an op")
        rule = rule_of(op)
        primary = rule.from_result(op, 0, layout)
        if primary is None:
            return self._free_then_converted(value, layout)
        t = tile_of(value.type)
        assert t is not None
        new = op if t.layout is None else _copy(op)
        target = new.results[0]
        self.copies[key] = target
        self.originals[target] = value
        target.type = with_layout(t, layout)
        if "type" in new.attrs:
            new.attrs["type"] = target.type
        for i, v in enumerate(list(new.operands)):
            base = self.originals.get(v, v)
            if base in self.graph.free:
                wanted = rule.operand(op, i, primary)
                assert wanted is not None
                fit = self._free(base, wanted)
                if fit is not v:
                    new.set_operand(i, fit)
        if new is not op and op.parent is not None:
            op.parent.insert_after(op, new)
        return target

    def _free_then_converted(self, value: Value, layout: Layout) -> Value:
        """A layout that the op cannot give (a size-1 dimension padded for an instruction): in a plain one, then converted."""
        plain = self._free(value, self.graph.default_layout(value))
        maker = plain.defining_op
        t = tile_of(value.type)
        assert maker is not None and maker.parent is not None and t is not None
        op = ConvertLayoutOp(
            plain, t.with_layout(layout), reason=f"{maker.name} cannot give this layout", loc=maker.loc
        )
        maker.parent.insert_after(maker, op)
        self.copies[(value, layout)] = op.results[0]
        self.originals[op.results[0]] = value
        return op.results[0]

    # ------------------------------------------------------------------------------------------------------- conversions

    def _converted(self, value: Value, wanted: Layout, user: OpBase) -> Value:
        have = _layout(value)
        if have is wanted:
            return value
        place = _place(value, user)
        block = place.parent
        assert block is not None
        for earlier in self.done.get((value, wanted), ()):
            if _is_around(earlier.defining_op, place):
                return earlier
        if isinstance(value.type, InflightType):
            raise InternalError(f"an accumulator in flight would need a conversion before {user.name}", user.loc)
        t = tile_of(value.type)
        assert t is not None
        maker = value.defining_op
        source = f"{maker.name} (line {maker.loc.line})" if maker is not None else "a carried value"
        reason = f"{source} gives it one way, {user.name} (line {user.loc.line}) takes it another"
        op = ConvertLayoutOp(value, t.with_layout(wanted), reason=reason, loc=user.loc)
        op.results[0].name = value.name
        block.insert_before(place, op)
        self.done.setdefault((value, wanted), []).append(op.results[0])
        self.module.remark("layout", user.loc, f"converted {t.with_layout(None)}: {reason}")
        return op.results[0]

    def sweep(self) -> None:
        """Free ops that nobody took go away, users first."""
        for op in reversed(self.free_ops):
            if op.parent is not None and not any(r.users for r in op.results):
                op.erase()


def _layout(value: Value) -> Layout:
    t = tile_of(value.type)
    if t is None or t.layout is None:
        raise InternalError(f"{value} has no layout yet")
    return t.layout


def with_layout(t: Type, layout: Layout) -> Type:
    """A tile's type (or that of one in flight) with a layout."""
    if isinstance(t, InflightType):
        return InflightType(t.tensor.with_layout(layout))
    if isinstance(t, TensorType):
        return t.with_layout(layout)
    raise InternalError(f"{t} takes no layout")


def _copy(op: OpBase) -> OpBase:
    """The same op once more (no regions), not yet in a block."""
    new: Any = object.__new__(type(op))
    new.operands = list(op.operands)
    new.segments = op.segments
    new.attrs = dict(op.attrs)
    new.regions = []
    new.results = [Value(r.type, new, i, r.name) for i, r in enumerate(op.results)]
    new.loc = op.loc
    new.parent = None
    for v in new.operands:
        v.users.append(new)
    return new


def _place(value: Value, user: OpBase) -> OpBase:
    """The op before which a conversion goes: `user`, or the outermost loop around it that does not hold the value's definition."""
    home = value.owner.parent if isinstance(value.owner, OpBase) else value.owner
    place = user
    op: OpBase = user
    while op.parent is not None and op.parent is not home:
        outer = op.parent.parent_op
        if outer is None:
            break
        if outer.name in ("control.for", "control.while"):
            place = outer
        op = outer
    return place


def _is_around(earlier: OpBase | None, place: OpBase) -> bool:
    """Whether an op that was put earlier dominates `place`: it stands in the same block or in one around it."""
    if earlier is None:
        return False
    op: OpBase | None = place
    while op is not None:
        if op.parent is earlier.parent:
            return True
        op = op.parent.parent_op if op.parent is not None else None
    return False
