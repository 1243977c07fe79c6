"""Run-time control flow: branches, loops and inlined functions as regions, and the merging of slots where their
edges meet.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from mimw.diagnostics import CompilationError, Loc, Note
from mimw.frontend import scope
from mimw.frontend.aliases import reached_elsewhere, records_in
from mimw.frontend.scope import Conflict, Context, Edge, Key, State, Template, Undefined
from mimw.frontend.tracer import Flow, Tracer
from mimw.ir.core import OpBase, Value
from mimw.ir.ops.control import (
    IfOp,
    InlinedOp,
    ReturnOp,
    UnreachableOp,
    YieldOp,
)
from mimw.ir.ops.mma import AsInflightOp
from mimw.ir.types import InflightType, Type, element_of
from mimw.language import semantic
from mimw.language.core import is_tuple, tensor

RESULT: Key = (0, "")
"""The key of an expression's own result among the slots that merge."""


def convert(t: Tracer, x: Any, want: Type) -> Value:
    """A leaf as a value of the merged type: a constant, a widening cast, or itself."""
    if isinstance(x, tensor):
        if x.value.type is want:
            return x.value
        if isinstance(want, InflightType):
            return t.builder.insert(AsInflightOp(x.value, loc=t.builder.loc)).result
        return semantic.cast(x.value, element_of(want))
    e = element_of(want)
    number = float(x) if getattr(e, "kind", "") == "float" else x
    return t.builder.constant(number, want)


def close_edge(t: Tracer, edge: Edge, values: list[tuple[Template, Any]]) -> None:
    """Hand the leaves of `values` to the edge's terminator (a new yield when it has none)."""
    builder = t.builder
    saved = builder.block, builder.anchor, builder.loc
    builder.block, builder.anchor, builder.loc = edge.block, edge.terminator, edge.loc
    out: list[Value] = []
    for template, x in values:
        for leaf, want in zip(scope.leaves(template, x), scope.types_of(template), strict=True):
            out.append(convert(t, leaf, want))
    if edge.terminator is None:
        builder.insert(YieldOp(out, loc=edge.loc))
    else:
        edge.terminator.append_operands(out)
    builder.block, builder.anchor, builder.loc = saved


def merge_edges(
    t: Tracer, base: State, edges: list[Edge], with_value: bool
) -> tuple[dict[Key, Template], dict[Key, Undefined]]:
    """Templates of the slots that change on some edge (and of the edges' values), and the slots that end up without
    one value.
    """
    merged: dict[Key, Template] = {}
    undefined: dict[Key, Undefined] = {}
    keys: dict[Key, None] = {}
    for e in edges:
        for key in e.state.slots:
            keys[key] = None
    known = set(base.slots)
    for key in keys:
        if key not in known and not isinstance(key, str):
            continue  # a field of a record made inside: reached through the name that holds it
        have = [e.state.slots.get(key, _MISSING) for e in edges]
        before = base.slots.get(key, _MISSING)
        if all(v is before for v in have):
            continue
        poison = next((v for v in have if isinstance(v, Undefined)), None)
        if poison is not None:
            undefined[key] = poison
            continue
        if any(v is _MISSING for v in have):
            undefined[key] = _one_sided(t, key, edges, have)
            continue
        if isinstance(key, str) and before is not _MISSING and reached_elsewhere(t.frame, key, before):
            t.torn.mark(before, t.builder.loc)
        have = freeze(edges, have, known)
        for e, v in zip(edges, have, strict=True):
            e.state.slots[key] = v
        template = scope.merge(have, before)
        if isinstance(template, Conflict):
            t.yield_to(have)
            undefined[key] = conflict_of(t, key, edges, template)
        else:
            merged[key] = template
    if with_value:
        for e, v in zip(edges, freeze(edges, [e.value for e in edges], known), strict=True):
            e.value = v
        template = scope.merge([e.value for e in edges], _MISSING)
        if isinstance(template, Conflict):
            at = edges[template.right].loc
            raise CompilationError(
                "branch-type", f"the two ways give {template.first} and {template.second}", at,
                notes=[Note("the first value is here", edges[template.left].loc)], hint="cast one side with .to(...)",
            )  # fmt: skip
        merged[RESULT] = template
    return merged, undefined


_MISSING = object()


def freeze(edges: list[Edge], values: list[Any], known: set[Key]) -> list[Any]:
    """Values with their records as they were on each edge: copies, but for one record of before that stands on all
    edges.
    """
    first = values[0]
    if is_tuple(first) and first and all(type(v) is type(first) and len(v) == len(first) for v in values):
        columns = [freeze(edges, list(c), known) for c in zip(*values, strict=True)]
        return [scope.tuple_like(first, row) for row in zip(*columns, strict=True)]
    if (
        scope.is_dataclass(first)
        and all(v is first for v in values)
        and any((id(first), f) in known for f in scope.field_names(first))
    ):
        return values
    return [_frozen(e.state, v) for e, v in zip(edges, values, strict=True)]


def _frozen(state: State, v: Any) -> Any:
    if is_tuple(v):
        return scope.tuple_like(v, [_frozen(state, x) for x in v])
    if scope.is_dataclass(v):
        fields = {f: _frozen(state, state.slots.get((id(v), f), getattr(v, f))) for f in scope.field_names(v)}
        return scope.new_record(type(v), fields)
    return v


def _one_sided(t: Tracer, key: Key, edges: list[Edge], have: list[Any]) -> Undefined:
    there = next(e for e, v in zip(edges, have, strict=True) if v is not _MISSING)
    other = next(e for e, v in zip(edges, have, strict=True) if v is _MISSING)
    notes: list[tuple[str, Loc]] = []
    if key in there.state.assigned:
        notes.append(("it is assigned here", there.state.assigned[key]))
    notes.append(("on this way it is not assigned", other.loc))
    return Undefined(
        "maybe-undefined",
        "{name} is assigned on one side of a run-time branch only",
        notes,
        "assign it before the branch",
    )


def conflict_of(t: Tracer, key: Key, edges: list[Edge], c: Conflict) -> Undefined:
    """What a slot becomes when two edges bring values that do not merge."""
    notes: list[tuple[str, Loc]] = []
    for e, what in ((edges[c.left], c.first), (edges[c.right], c.second)):
        place = e.state.assigned.get(key, e.loc)
        notes.append((f"here it is {what}", place))
    return Undefined(
        "branch-type",
        f"{{name}} is {c.first} on one side of a run-time branch and {c.second} on the other",
        notes,
        "give both sides one type, for instance with .to(...)",
    )


def join(
    t: Tracer, base: State, edges: list[Edge], with_value: bool, make: Callable[[tuple[Type, ...]], OpBase]
) -> Any:
    """Merge edges, build the op by `make(result types)`, bind the merged slots; the merged value."""
    merged, undefined = merge_edges(t, base, edges, with_value)
    for e in edges:
        close_edge(t, e, [(tpl, e.value if k is RESULT else e.state.slots[k]) for k, tpl in merged.items()])
    types = tuple(ty for tpl in merged.values() for ty in scope.types_of(tpl))
    op = t.builder.insert(make(types))
    results = iter(op.results)
    outcome: Any = None
    for key, tpl in merged.items():
        value = scope.rebuild(tpl, results, "" if key is RESULT else t.value_name(key))
        if key is RESULT:
            outcome = value
            t.adopt(value)
            continue
        if any(t.torn.place(r) for r in records_in(base.slots.get(key))):
            t.torn.mark(value, t.builder.loc)
        t.set_slot(key, value)
        t.frame.assigned[key] = _latest(edges, key, t.builder.loc)
    for key, u in undefined.items():
        t.set_slot(key, u)
    return outcome


def _latest(edges: list[Edge], key: Key, default: Loc) -> Loc:
    for e in reversed(edges):
        if key in e.state.assigned:
            return e.state.assigned[key]
    return default


# Branches.


def branch(t: Tracer, cond: Value, then: Callable[[], Any], orelse: Callable[[], Any], statements: bool) -> Any:
    """A run-time `if`. The sides give a `Flow` (statements) or a value (expressions); so does this."""
    base = t.capture()
    loc = t.builder.loc
    regions = [t.region(), t.region()]
    edges: list[Edge] = []
    for region, side in zip(regions, (then, orelse), strict=True):
        t.frame.contexts.append(Context("if", loc))
        with t.builder.at(region.block):
            out = side()
        t.frame.contexts.pop()
        if not (statements and out == Flow.LEFT):
            edges.append(Edge("yield", region.block, t.capture(), loc, None, None if statements else out))
        t.restore(base)

    def make(types: tuple[Type, ...]) -> OpBase:
        t.attach(regions)
        return IfOp(cond, regions[0], regions[1], types, loc=loc)

    if not edges:
        t.builder.insert(make(()))
        t.builder.insert(UnreachableOp(loc=loc))
        return Flow.LEFT
    value = join(t, base, edges, not statements, make)
    return Flow.NEXT if statements else value


def inlined(t: Tracer, body: Callable[[], Flow], callee: str) -> Any:
    """A function body that returns from inside run-time control flow: `control.inlined`; the value returned."""
    base = t.capture()
    loc = t.builder.loc
    region = t.region()
    frame = t.frame
    edges: list[Edge] = []
    frame.inlined = edges
    with t.builder.at(region.block):
        flow = body()
        if flow != Flow.LEFT:
            from_end = Edge("return", region.block, t.capture(), loc, None, None)
            from_end.terminator = t.builder.insert(ReturnOp([], loc=loc))
            edges.append(from_end)
    t.restore(base)
    if not edges:
        raise CompilationError("no-return", f"{callee} never returns", loc)
    for e in edges:  # only records of callers outlive the call; names are the callee's
        e.state.slots = _without_names(e.state.slots)
    base.slots = _without_names(base.slots)

    def make(types: tuple[Type, ...]) -> OpBase:
        t.attach([region])
        return InlinedOp(region, types, callee, loc=loc)

    return join(t, base, edges, True, make)


def _without_names(slots: dict[Key, Any]) -> dict[Key, Any]:
    return {k: v for k, v in slots.items() if not isinstance(k, str)}


def assigned_names(nodes: list[ast.stmt]) -> tuple[set[str], set[str]]:
    """Names and attribute names that statements assign anywhere inside (a first guess at what a loop carries)."""
    names: set[str] = set()
    fields: set[str] = set()
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                fields.add(node.attr)
    return names, fields
