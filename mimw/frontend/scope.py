"""Names, records and what control flow does to them: slots, snapshots, edges, merging.

A *slot* is a name of the current frame (key: the name) or a field of a mutable record (key: (id of the record,
field)). A branch or loop takes a snapshot of all slots; each way out of a region is an *edge* with its own snapshot.
Where edges meet, slots that differ are merged into results of the op: a *template* says which leaves are run-time
values and of what type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Union

from mimw.diagnostics import Loc
from mimw.ir.core import Block, OpBase, Value
from mimw.ir.types import F32, DType, TensorType, Type, element_of
from mimw.language import promotion
from mimw.language.core import explain, is_tuple, tensor
from mimw.language.handles import merged, wrap

Key = Union[str, tuple[int, str]]


class Undefined:
    """What a name is bound to when it has no one value here; reading it is an error that tells `why`."""

    __slots__ = ("code", "first", "hint", "name", "notes", "why")

    def __init__(self, code: str, why: str, notes: list[tuple[str, Loc]], hint: str | None = None) -> None:
        self.code = code
        self.why = why
        self.notes = notes
        self.hint = hint


class Deferred:
    """A value that is made only when read: the last value of a loop's variable."""

    __slots__ = ("made", "make")

    def __init__(self, make: Callable[[], tensor]) -> None:
        self.make = make
        self.made: tensor | None = None

    def force(self) -> tensor:
        """The value."""
        if self.made is None:
            self.made = self.make()
        return self.made


class Frame:
    """One function being traced: its names, where each was assigned last, and how it returns.

    `outer` is the frame of the function around it, for one that a kernel defines inside itself.
    """

    __slots__ = (
        "assigned",
        "caller",
        "contexts",
        "fn",
        "inlined",
        "locals",
        "name",
        "names",
        "outer",
        "returned",
        "source",
        "site",
    )

    def __init__(self, fn: Callable[..., Any], source: Any, site: Loc | None) -> None:
        self.fn = fn
        self.source = source
        self.name: str = fn.__name__
        self.site = site
        self.names: dict[str, Any] = {}
        self.assigned: dict[Key, Loc] = {}
        self.locals: frozenset[str] = frozenset(fn.__code__.co_varnames + fn.__code__.co_cellvars)
        self.contexts: list[Context] = []
        self.inlined: list[Edge] | None = None
        self.returned: Any = None
        self.caller: Frame | None = None
        self.outer: Frame | None = None


class Context:
    """A construct around the statement being traced. `kind` "if" (run-time), "loop" (run-time), "static" (unrolled loop)
    or "task".
    """

    __slots__ = ("edges", "kind", "loc")

    def __init__(self, kind: str, loc: Loc) -> None:
        self.kind = kind
        self.loc = loc
        self.edges: list[Edge] = []


class State:
    """All slots at one moment, and where they were assigned."""

    __slots__ = ("assigned", "record_count", "slots")

    def __init__(self, slots: dict[Key, Any], assigned: dict[Key, Loc], record_count: int) -> None:
        self.slots = slots
        self.assigned = assigned
        self.record_count = record_count


class Edge:
    """One way out of a region: the block it leaves, its terminator (None: still to come), the slots, a result, the
    place.
    """

    __slots__ = ("block", "kind", "loc", "state", "terminator", "value")

    def __init__(
        self, kind: str, block: Block, state: State, loc: Loc, terminator: OpBase | None = None, value: Any = None
    ) -> None:
        self.kind = kind
        self.block = block
        self.state = state
        self.loc = loc
        self.terminator = terminator
        self.value = value


# Records.


def class_of(x: Any) -> Any:
    """An object's class, untyped: records come from the user."""
    return x.__class__


def tuple_like(like: tuple[Any, ...], parts: Iterable[Any]) -> Any:
    """A tuple, or a named tuple of the class of `like`, of these parts."""
    return tuple(parts) if type(like) is tuple else class_of(like)(*parts)


def is_dataclass(x: Any) -> bool:
    """Whether an object is an instance of a dataclass."""
    return not isinstance(x, type) and hasattr(class_of(x), "__dataclass_fields__")


def field_names(x: Any) -> Iterator[str]:
    """The fields of a dataclass instance, or of what else branches merge field by field."""
    return iter(x.FIELDS if isinstance(x, merged) else class_of(x).__dataclass_fields__)


def new_record(cls: Any, values: dict[str, Any]) -> Any:
    """A dataclass instance with these fields, without calling its constructor."""
    out: Any = object.__new__(cls)
    for name, v in values.items():
        object.__setattr__(out, name, v)
    return out


# Templates.


class Keep:
    """A template leaf that is the same on every edge: this value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Dynamic:
    """A template leaf that is a run-time value of `type`."""

    __slots__ = ("type",)

    def __init__(self, type: Type) -> None:
        self.type = type


class Struct:
    """A tuple, named tuple or record: a template for each part. `fields` are a record's field names."""

    __slots__ = ("cls", "fields", "parts")

    def __init__(self, cls: Any, parts: list[Template], fields: list[str] | None) -> None:
        self.cls = cls
        self.parts = parts
        self.fields = fields


class Conflict:
    """Two values that do not merge: how they are called, and which of the merged ones they are (`left` < `right`)."""

    __slots__ = ("first", "left", "right", "second")

    def __init__(self, values: list[Any], i: int, j: int) -> None:
        self.left, self.right = min(i, j), max(i, j)
        self.first = type_name(values[self.left])
        self.second = type_name(values[self.right])


Template = Union[Keep, Dynamic, Struct, Conflict]


def same_constant(a: Any, b: Any) -> bool:
    """Whether two trace-time objects are one constant (1, 1.0 and True differ; so do 0.0 and -0.0)."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, (tensor, Undefined, Deferred)):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)
    if is_tuple(a) and is_tuple(b):
        return len(a) == len(b) and all(same_constant(x, y) for x, y in zip(a, b, strict=True))
    return isinstance(a, (int, str, bytes)) and a == b


def settle(x: Any) -> Any:
    """The value itself, deferred ones made."""
    return x.force() if isinstance(x, Deferred) else x


def type_name(x: Any) -> str:
    """How messages name the type of a trace-time value."""
    x = settle(x)
    if isinstance(x, tensor):
        return str(x.value.type)
    if isinstance(x, (bool, int, float, str)) or x is None:
        return f"the constant {x!r}"
    return class_of(x).__name__ if is_tuple(x) and not hasattr(x, "SAID") else explain(x)


def leaf_type(x: Any) -> Type | None:
    """The IR type of a tensor, or the type a Python number takes at run time; None for other objects."""
    if isinstance(x, tensor):
        return x.value.type
    if isinstance(x, (bool, int, float)):
        return promotion.number_dtype(x)
    return None


def fits(x: Any, t: Type) -> bool:
    """Whether a constant is exact in the elements of `t` (or a tensor has a type that widens to it exactly)."""
    if isinstance(x, tensor):
        return promotion.exact_common(x.value.type, t) is t
    if not isinstance(t, (DType, TensorType)):
        return False
    e = element_of(t)
    if not isinstance(e, DType):
        return False
    if isinstance(x, bool):
        return e.kind == "bool"
    if isinstance(x, int):
        if e.kind == "float":
            return abs(x) <= 1 << (e.mantissa + 1)
        low, high = promotion.int_bounds(e)
        return e.kind != "bool" and low <= x <= high
    return isinstance(x, float) and e.kind == "float"


def merge_leaves(values: list[Any]) -> Dynamic | Conflict:
    """One run-time type for numbers and tensors. Tensors decide; a number takes their type when it is exact in it."""
    at = next((i for i, v in enumerate(values) if isinstance(v, tensor)), 0)
    t: Type | None = values[at].value.type if isinstance(values[at], tensor) else _numbers_type(values)
    for i, v in enumerate(values):
        own = leaf_type(v)
        if own is None or t is None:
            return Conflict(values, at if i != at else 1 - at, i)
        if fits(v, t):
            continue
        wider = promotion.exact_common(t, own) if isinstance(v, tensor) else _widen_for_number(t, v)
        if wider is None:
            return Conflict(values, at, i)
        t, at = wider, i
    assert t is not None
    return Dynamic(t)


def _numbers_type(values: list[Any]) -> Type | None:
    """The type of numbers alone: i1 for bools, the first of i32, i64 that fits for ints, f32 when a float is among
    them.
    """
    types = [t for t in map(leaf_type, values) if isinstance(t, DType)]
    if len(types) < len(values):
        return None
    out = types[0]
    for t in types[1:]:
        wider = promotion.exact_common(out, t)
        out = wider if isinstance(wider, DType) else F32 if F32 in (out, t) else out
    return out


def _widen_for_number(t: Type, v: int | float) -> Type | None:
    """A wider integer type of the same shape that holds a constant too."""
    own = promotion.number_dtype(v)
    if not isinstance(t, (DType, TensorType)):
        return None
    wide = t.with_element(own) if isinstance(t, TensorType) else own
    return wide if promotion.exact_common(t, wide) is wide else None


def merge(values: list[Any], base: Any = None) -> Template:
    """A template for values that meet; `base` is what the slot held before (the same everywhere: nothing to do)."""
    first = values[0]
    if all(v is base for v in values):
        return Keep(base)
    values = [settle(v) for v in values]
    first = values[0]
    if not isinstance(first, tensor) and all(same_constant(first, v) for v in values) and _constant(first):
        return Keep(first)
    if is_dataclass(first) and all(v is first for v in values):
        return Keep(first)
    if isinstance(first, (tuple, merged)) or is_dataclass(first):
        return _merge_struct(values)
    return merge_leaves(values)


def _constant(x: Any) -> bool:
    """Whether a trace-time object holds no run-time value."""
    if is_tuple(x):
        return all(_constant(v) for v in x)
    return not isinstance(x, (tensor, Deferred)) and not is_dataclass(x)


def parts_of(x: Any) -> list[Any]:
    """The parts of a tuple or record."""
    if is_tuple(x):
        return list(x)
    return [getattr(x, f) for f in field_names(x)]


def _merge_struct(values: list[Any]) -> Template:
    first = values[0]
    rows = [parts_of(first)]
    for i, v in enumerate(values[1:], 1):
        if type(v) is not type(first) or len(parts_of(v)) != len(rows[0]):
            return Conflict(values, 0, i)
        rows.append(parts_of(v))
    parts: list[Template] = []
    for column in zip(*rows, strict=True):
        part = merge(list(column), _NOTHING)
        if isinstance(part, Conflict):
            return part
        parts.append(part)
    return Struct(type(first), parts, None if isinstance(first, tuple) else list(field_names(first)))


_NOTHING = object()


def template_of(x: Any) -> Template:
    """The template of one value that is to be carried around a loop: numbers become run-time values."""
    x = settle(x)
    t = leaf_type(x)
    if t is not None:
        return Dynamic(t)
    if isinstance(x, tuple) or is_dataclass(x):
        parts = [template_of(p) for p in parts_of(x)]
        return Struct(class_of(x), parts, None if isinstance(x, tuple) else list(field_names(x)))
    return Keep(x)


def types_of(t: Template) -> Iterator[Type]:
    """The types of a template's run-time leaves."""
    if isinstance(t, Dynamic):
        yield t.type
    elif isinstance(t, Struct):
        for p in t.parts:
            yield from types_of(p)


def leaves(t: Template, x: Any) -> Iterator[Any]:
    """The parts of a value that stand at a template's run-time leaves."""
    if isinstance(t, Dynamic):
        yield settle(x)
    elif isinstance(t, Struct):
        for p, v in zip(t.parts, parts_of(settle(x)), strict=True):
            yield from leaves(p, v)


def rebuild(t: Template, values: Iterator[Value], name: str = "") -> Any:
    """A trace-time value from a template and the values of its leaves; values get `name`."""
    if isinstance(t, Keep):
        return t.value
    if isinstance(t, Dynamic):
        v = next(values)
        if not v.name:
            v.name = name
        return wrap(v)
    if isinstance(t, Conflict):
        raise AssertionError("a conflict has no value")
    if t.fields is not None:
        return new_record(t.cls, {f: rebuild(p, values, f"{name}_{f}") for f, p in zip(t.fields, t.parts, strict=True)})
    parts = [rebuild(p, values, f"{name}_{i}") for i, p in enumerate(t.parts)]
    return tuple(parts) if t.cls is tuple else t.cls(*parts)


def loop_template(t: Template, init: Any, edges: list[Any]) -> Template:
    """What a carried slot must look like so that `init` and the value of every edge fit; `t` is what it looks like now.

    In a conflict `init` counts as value 0, the edges as 1 and up.
    """
    values = [settle(v) for v in (init, *edges)]
    if isinstance(t, Struct):
        rows: list[list[Any]] = []
        for i, v in enumerate(values):
            if not isinstance(v, t.cls) or len(parts_of(v)) != len(t.parts):
                return Conflict(values, 0, i)
            rows.append(parts_of(v))
        parts: list[Template] = []
        for k, part in enumerate(t.parts):
            p = loop_template(part, rows[0][k], [r[k] for r in rows[1:]])
            if isinstance(p, Conflict):
                return p
            parts.append(p)
        return Struct(t.cls, parts, t.fields)
    if isinstance(t, Keep):
        for i, v in enumerate(values):
            if v is not t.value and not same_constant(v, t.value):
                if isinstance(t.value, (merged, tuple)):
                    return _merge_struct(values)  # a guess that is checked again; its constants may turn out to change
                return Conflict(values, 0, i) if leaf_type(t.value) is None else merge_leaves(values)
        return t
    if isinstance(t, Conflict):
        return t
    return merge_leaves(values)
