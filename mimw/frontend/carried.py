"""What a run-time loop carries around: the guess, its check against the edges, the final binding.

A loop is traced with a guess: the slots that its statements assign by name. When an edge shows that more is carried,
or that a carried slot needs another type, the trace is rolled back and repeated; the guess only grows, so this ends.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from mimw.diagnostics import CompilationError, Loc, Note
from mimw.frontend import scope
from mimw.frontend.aliases import reached_elsewhere, records_in
from mimw.frontend.expressions import is_constant
from mimw.frontend.regions import assigned_names, close_edge, convert, freeze
from mimw.frontend.scope import Conflict, Dynamic, Edge, Key, State, Template, Undefined
from mimw.frontend.tracer import Flexible, Retype, Tracer
from mimw.ir.core import Block, OpBase, Value
from mimw.ir.types import Type
from mimw.language.core import is_tuple, tensor
from mimw.language.handles import moving


class Carried:
    """The slots that a loop carries: a template each, and what they held before. `gone`: those that it changes but cannot carry."""

    __slots__ = ("base", "gone", "templates")

    def __init__(self, base: State) -> None:
        self.base = base
        self.templates: dict[Key, Template] = {}
        self.gone: dict[Key, Undefined] = {}

    def types(self) -> list[Type]:
        """The types of all leaves, in order."""
        return [ty for tpl in self.templates.values() for ty in scope.types_of(tpl)]

    def enter(self, t: Tracer, block: Block) -> dict[Key, Any]:
        """Give a block an argument for each leaf and bind the slots to them; what each slot was bound to."""
        bound: dict[Key, Any] = {}
        for key, tpl in self.templates.items():
            args = [block.add_arg(ty) for ty in scope.types_of(tpl)]
            if isinstance(tpl, Dynamic):
                self._guess(t, key, args[0])
            bound[key] = scope.rebuild(tpl, iter(args), t.value_name(key))
        for key, value in bound.items():
            if isinstance(key, str) and _holds_record(value) and reached_elsewhere(t.frame, key, self.base.slots[key]):
                t.torn.mark((self.base.slots[key], value), t.builder.loc)
            t.set_slot(key, value)
        for key, why in self.gone.items():
            t.set_slot(key, why)  # what it held before the loop holds in the first trip only
        return bound

    def _guess(self, t: Tracer, key: Key, arg: Value) -> None:
        """Note that the type of `arg` is a guess: its slot starts from a constant, here or in a loop around."""
        start = scope.settle(self.base.slots[key])
        if isinstance(start, (int, float)):
            t.flexible[id(arg)] = Flexible(arg, self, key, start)
        elif isinstance(start, tensor) and id(start.value) in t.flexible:
            outer = t.flexible[id(start.value)]
            t.flexible[id(arg)] = Flexible(arg, outer.owner, outer.key, outer.start)

    def row(self, slots: dict[Key, Any]) -> list[tuple[Template, Any]]:
        """Templates with the value of each slot, for `close_edge`."""
        return [(tpl, slots[key]) for key, tpl in self.templates.items()]


def first_guess(t: Tracer, base: State, nodes: list[ast.stmt], excluded: set[str]) -> Carried:
    """The slots that the statements assign by name, with the types they have now."""
    names, fields = assigned_names(nodes)
    moved = _moved_by_methods(base, nodes)
    out = Carried(base)
    for key, value in base.slots.items():
        hit = key in names - excluded if isinstance(key, str) else key[1] in fields or key in moved
        if hit and not isinstance(value, Undefined):
            out.templates[key] = scope.template_of(value)
    return out


def _moved_by_methods(base: State, nodes: list[ast.stmt]) -> set[Key]:
    """The fields that calls of methods (``pipe.wait()``) will change: each nested loop would else be traced once more to find out."""
    used: dict[str, set[str]] = {}
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.setdefault(node.value.id, set()).add(node.attr)
    out: set[Key] = set()
    for name, methods in used.items():
        record = base.slots.get(name)
        if isinstance(record, moving):
            out.update((id(record), f) for f in record.moved_by(methods))
    return out


class Attempt:
    """One trace of a loop's body: its edges, what each carried slot was bound to at the start."""

    __slots__ = ("bound", "edges")

    def __init__(self, bound: list[dict[Key, Any]], edges: list[Edge]) -> None:
        self.bound = bound
        self.edges = edges


def settle_carried(t: Tracer, carried: Carried, attempt: Attempt, excluded: set[str]) -> bool:
    """Compare the edges with the guess; False when the guess had to change and the loop must be traced again."""
    base, gone = carried.base.slots, carried.gone
    known: set[Key] = set(base)
    again = False
    for key, before in base.items():
        if key in carried.templates or key in gone or (isinstance(key, str) and key in excluded):
            continue
        if any(not unchanged(before, e.state.slots.get(key, before)) for e in attempt.edges):
            if isinstance(before, Undefined):
                gone[key] = _inside_only(t, key, attempt.edges)
                continue
            carried.templates[key] = scope.template_of(before)
            again = True
    if again:
        return False
    for key, tpl in list(carried.templates.items()):
        starts = [b[key] for b in attempt.bound]
        moving = [e for e in attempt.edges if not any(e.state.slots[key] is s for s in starts)]
        if all(unchanged(base[key], e.state.slots[key]) for e in moving):
            del carried.templates[key]  # the guess was too wide: nothing changes it
            again = True
            continue
        if _holds_record(base[key]):
            moving = attempt.edges  # the record may be the one of the start, with other fields
        blame = moving[0]
        for e in moving:
            if isinstance(e.state.slots[key], Undefined):
                gone[key] = e.state.slots[key]
        if key not in gone and moving:
            for e, v in zip(moving, freeze(moving, [e.state.slots[key] for e in moving], known), strict=True):
                e.state.slots[key] = v
        if key in gone:
            found: Template = tpl
        else:
            found = scope.loop_template(tpl, base[key], [e.state.slots[key] for e in moving])
            if isinstance(found, Conflict):
                t.yield_to([base[key], *(e.state.slots[key] for e in moving)])
                gone[key] = _conflict(key, base[key], carried, found)
                blame = moving[max(0, found.right - 1)]
        if key in gone:
            if _is_read(starts):
                u = gone[key]
                at = blame.state.assigned.get(key, blame.loc)
                raise CompilationError(
                    u.code if u.code != "branch-type" else "carried-type", u.why.format(name=t.slot_name(key)), at,
                    notes=[Note(text, loc) for text, loc in u.notes], hint=u.hint,
                )  # fmt: skip
            del carried.templates[key]
            again = True
        elif [*scope.types_of(found)] != [*scope.types_of(tpl)]:
            carried.templates[key] = found
            again = True
    return not again


def unchanged(before: Any, after: Any) -> bool:
    return after is before or (
        not isinstance(after, tensor) and is_constant(after) and scope.same_constant(before, after)
    )


def _holds_record(x: Any) -> bool:
    return scope.is_dataclass(x) or (is_tuple(x) and any(_holds_record(v) for v in x))


def _is_read(starts: list[Any]) -> bool:
    return any(
        leaf.value.users for s in starts for leaf in scope.leaves(scope.template_of(s), s) if isinstance(leaf, tensor)
    )


def _conflict(key: Key, init: Any, carried: Carried, c: Conflict) -> Undefined:
    notes: list[tuple[str, Loc]] = []
    if key in carried.base.assigned:
        notes.append((f"before the loop it is {scope.type_name(init)}", carried.base.assigned[key]))
    if c.left == 0:
        text = f"{{name}} is {scope.type_name(init)} before the loop and {c.second} after a pass through it"
    else:
        text = f"{{name}} is {c.first} after one pass through the loop and {c.second} after another"
    return Undefined(
        "carried-type", text, notes, "give it one type: start with the final type, or convert with .to(...)"
    )


def _inside_only(t: Tracer, key: Key, edges: list[Edge]) -> Undefined:
    notes: list[tuple[str, Loc]] = []
    for e in edges:
        if key in e.state.assigned:
            notes.append(("it is assigned here", e.state.assigned[key]))
            break
    text = "{name} is assigned only inside a loop, which may not run"
    return Undefined("maybe-undefined", text, notes, "assign it before the loop")


def finish(t: Tracer, carried: Carried, op: OpBase, edges: list[Edge]) -> None:
    """Bind the slots to the loop's results; names that only the loop assigns become undefined."""
    base, gone = carried.base, carried.gone
    t.restore(base)
    results = iter(op.results)
    for key, tpl in carried.templates.items():
        value = scope.rebuild(tpl, results, t.value_name(key))
        if any(t.torn.place(r) for r in records_in(base.slots[key])):
            t.torn.mark(value, t.builder.loc)
        t.set_slot(key, value)
        for e in edges:
            if key in e.state.assigned:
                t.frame.assigned[key] = e.state.assigned[key]
    for key, u in gone.items():
        t.set_slot(key, u)
    for e in edges:
        for key in e.state.slots:
            if isinstance(key, str) and key not in base.slots and key not in t.frame.names:
                t.frame.names[key] = _inside_only(t, key, edges)


def close_edges(t: Tracer, carried: Carried, edges: list[Edge]) -> None:
    """Give every edge the carried values; edges that fall through get a yield."""
    for e in edges:
        close_edge(t, e, carried.row(e.state.slots))


def initial_values(t: Tracer, carried: Carried) -> list[Value]:
    """The carried values before the first pass, at the current insertion point."""
    out: list[Value] = []
    for key, tpl in carried.templates.items():
        for leaf, ty in zip(scope.leaves(tpl, carried.base.slots[key]), scope.types_of(tpl), strict=True):
            out.append(convert(t, leaf, ty))
    return out


_TRIES = 12


def repeat(
    t: Tracer, node: ast.For | ast.While, carried: Carried, excluded: set[str], once: Callable[[], Attempt]
) -> Attempt:
    """Trace the body until the guess of what it carries holds."""
    mark = t.mark()
    contexts, depth = t.frame.contexts, len(t.frame.contexts)
    for _ in range(_TRIES):
        try:
            attempt = once()
            if settle_carried(t, carried, attempt, excluded):
                return attempt
        except Retype as e:
            if e.owner is not carried:
                raise
            carried.templates[e.key] = Dynamic(e.type)
            del contexts[depth:]
        t.rollback(mark)
    return t.error(
        "carried-type", "the types of what this loop carries do not settle", node, "convert carried values to one type"
    )
