"""How ops are declared: ``@op("memory.load")`` over a class whose fields are operands, results, attributes and regions.

The declaration is the single source of truth: constructor, checks, text form, effects, traits, error bound and documentation come
from it. `dataclass_transform` sits on `Op`, above the declared classes, so that checkers know the constructors. No code is
executed per class: `Op.__init__` binds arguments by walking the declared fields.

    @op("memory.load", effects=[Effect("global", "read", "ptr")])
    class LoadOp(Op):
        '''Read a tile.'''
        ptr: Value = operand()
        mask: Value | None = optional()
        cache: str = attr(default="")
        result: Value = result()
        def infer(self) -> list[Type]: ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, dataclass_transform

from mimw.diagnostics import Loc
from mimw.ir.core import OpBase, Region, Value
from mimw.ir.types import I1, DType, TensorType, Type


class Effect:
    """One thing an op does to memory.

    `space` global, shared, tensor_memory, barrier or debug; `kind` read or write; `operand` the name of the operand that says where (None: anywhere);
    `proxy` generic, async or tensormap; `agent` self or an engine (tma, tensor_core, cp_async); `completion` how its end is
    observed: None (at once), the name of a barrier operand, or a group kind (cp_async, bulk, wgmma).
    """

    __slots__ = ("agent", "completion", "kind", "operand", "proxy", "space")

    def __init__(
        self,
        space: str,
        kind: str,
        operand: str | None = None,
        proxy: str = "generic",
        agent: str = "self",
        completion: str | None = None,
    ) -> None:
        self.space = space
        self.kind = kind
        self.operand = operand
        self.proxy = proxy
        self.agent = agent
        self.completion = completion


class Field:
    """A declared field of an op. `role` operand, optional, variadic, result, results, attr or region."""

    __slots__ = ("choices", "default", "has_default", "name", "position", "role")

    def __init__(
        self, role: str, default: Any = None, has_default: bool = False, choices: tuple[Any, ...] = ()
    ) -> None:
        self.role = role
        self.name = ""
        self.position = 0
        self.default = default
        self.has_default = has_default
        self.choices = choices

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, op: OpBase | None, owner: type) -> Any:
        if op is None:
            return self
        role = self.role
        if role == "attr":
            return op.attrs[self.name]
        if role == "result":
            return op.results[self.position]
        if role == "results":
            return op.results[self.position :]
        if role == "region":
            return op.regions[self.position]
        if role == "regions":
            return op.regions[self.position :]
        start = sum(op.segments[: self.position])
        if role == "operand":
            return op.operands[start]
        count = op.segments[self.position]
        if role == "optional":
            return op.operands[start] if count else None
        return op.operands[start : start + count]


def operand() -> Any:
    """A required operand."""
    return Field("operand")


def optional(*, default: None = None) -> Any:
    """An operand that may be absent (None)."""
    return Field("optional", None, True)


def variadic() -> Any:
    """Any number of operands; the last operand field."""
    return Field("variadic")


def result(*, init: Literal[False] = False) -> Any:
    """One result; its type comes from `infer`."""
    return Field("result")


def results(*, init: Literal[False] = False) -> Any:
    """Any number of results."""
    return Field("results")


def attr(*, choices: tuple[Any, ...] = ()) -> Any:
    """A required attribute; `choices` lists the legal values."""
    return Field("attr", choices=choices)


def attr_default(*, default: Any, choices: tuple[Any, ...] = ()) -> Any:
    """An attribute with a default."""
    return Field("attr", default, True, choices)


def region() -> Any:
    """A region of one block."""
    return Field("region")


def regions() -> Any:
    """Any number of regions of one block each; the last region field."""
    return Field("regions")


def location(*, kw_only: Literal[True] = True) -> Any:
    """The mandatory keyword `loc` (declared once, in `Op`)."""
    return None


def result_types(*, default: None = None, kw_only: Literal[True] = True) -> Any:
    """The optional keyword `result_types`: types with layouts that `infer` cannot know (declared once, in `Op`)."""
    return None


class OpSpec:
    """What a declaration says, in a form that generic code can walk.

    `layout` is the op's layout trait: "elementwise" (all tensors in one layout), "none" (no tensors), "special" (a rule in
    passes/layout_inference/rules.py). `ulp` is the error bound of float results in units in the last place of the result type
    (0.5: correctly rounded; 0: exact), `bound` says it in words where ulps do not fit.
    """

    __slots__ = (
        "attrs",
        "bound",
        "cls",
        "doc",
        "effects",
        "fields",
        "layout",
        "name",
        "operands",
        "regions",
        "results",
        "terminator",
        "ulp",
    )

    def __init__(self, name: str, cls: type[OpBase], doc: str) -> None:
        self.name = name
        self.cls = cls
        self.doc = doc
        self.fields: list[Field] = []
        self.operands: list[Field] = []
        self.results: list[Field] = []
        self.attrs: list[Field] = []
        self.regions: list[Field] = []
        self.effects: tuple[Effect, ...] = ()
        self.terminator = False
        self.layout = "special"
        self.ulp: float = 0.0
        self.bound = ""

    @property
    def pure(self) -> bool:
        """No effects, not a terminator: may be removed when unused, merged when equal."""
        return not self.effects and not self.terminator


OPS: dict[str, OpSpec] = {}
"""Every declared op by name. `mimw.ir.ops` fills it on import."""


@dataclass_transform(
    eq_default=False,
    field_specifiers=(
        operand,
        optional,
        variadic,
        result,
        results,
        attr,
        attr_default,
        region,
        regions,
        location,
        result_types,
    ),
)
class _Declared(OpBase):
    """Carries the transform: fields of the class that it sits on are lost to checkers, so `Op` stands below it."""

    __slots__ = ()


class Op(_Declared):
    """Base of all declared ops: binds constructor arguments to the declared fields, creates the results."""

    __slots__ = ()
    if TYPE_CHECKING:
        loc: Loc = location()
        result_types: Sequence[Type] | None = result_types(default=None)

    def __init__(self, *args: Any, loc: Loc, result_types: Sequence[Type] | None = None, **kwargs: Any) -> None:
        spec = self.spec
        operands: list[Value] = []
        segments: list[int] = []
        self.attrs = {}
        self.regions = []
        self.results = []
        self.loc = loc
        self.parent = None
        given = len(args)
        for i, field in enumerate(spec.fields):
            name = field.name
            v: Any
            if i < given:
                v = args[i]
            elif name in kwargs:
                v = kwargs.pop(name)
            elif field.has_default:
                v = field.default
            elif field.role == "region":
                v = Region()
            else:
                raise TypeError(f"{spec.name} needs {name}")
            role = field.role
            if role == "operand":
                operands.append(v)
                segments.append(1)
            elif role == "attr":
                if field.choices and v not in field.choices:
                    raise ValueError(f"{spec.name}: {name} is {v!r}, not one of {field.choices}")
                self.attrs[name] = v
            elif role == "regions":
                for r in v:
                    r.parent = self
                self.regions.extend(v)
            elif role == "region":
                v.parent = self
                self.regions.append(v)
            elif role == "optional":
                segments.append(0 if v is None else 1)
                if v is not None:
                    operands.append(v)
            else:
                operands.extend(v)
                segments.append(len(v))
        if given > len(spec.fields) or kwargs:
            raise TypeError(f"{spec.name} does not take {sorted(kwargs) or args[len(spec.fields) :]}")
        self.operands = operands
        self.segments = tuple(segments)
        for t in self.infer() if result_types is None else result_types:
            self.results.append(Value(t, self, len(self.results)))
        for v in operands:  # last: an op that does not fit must not stay behind as a user
            v.users.append(self)

    def infer(self) -> list[Type]:
        """The types of the results, from operands and attributes; ValueError when they do not fit together."""
        return []


_O = TypeVar("_O", bound=OpBase)


def op(
    name: str,
    *,
    effects: Sequence[Effect] = (),
    terminator: bool = False,
    layout: str = "special",
    ulp: float = 0.0,
    bound: str = "",
) -> Callable[[type[_O]], type[_O]]:
    """Declare an op: reads the class's fields into an `OpSpec` and registers it under `name`."""

    def declare(cls: type[_O]) -> type[_O]:
        spec = OpSpec(name, cls, (cls.__doc__ or "").strip())
        for field in vars(cls).values():
            if isinstance(field, Field):
                _add_field(spec, field)
        spec.effects = tuple(effects)
        spec.terminator = terminator
        spec.layout = layout
        spec.ulp = ulp
        spec.bound = bound
        cls.spec = spec
        OPS[name] = spec
        return cls

    return declare


def _add_field(spec: OpSpec, field: Field) -> None:
    role = field.role
    if role in ("operand", "optional", "variadic"):
        field.position = len(spec.operands)
        spec.operands.append(field)
        spec.fields.append(field)
    elif role in ("result", "results"):
        field.position = len(spec.results)
        spec.results.append(field)
    elif role == "attr":
        spec.attrs.append(field)
        spec.fields.append(field)
    else:
        field.position = len(spec.regions)
        spec.regions.append(field)
        spec.fields.append(field)


class Row:
    """An elementwise op as a row of a table: name, arity, type rule, error bound, documentation.

    `rule` names the type rule: "same" (all operands and the result of one type), "compare" (i1 of the operands' shape),
    "select" (i1, T, T -> T), "test" (float -> i1), "shift" (same). `kinds` are the dtype kinds that are legal for the operands
    (the last two for "select").
    """

    __slots__ = ("arity", "kinds", "rule")

    def __init__(self, arity: int, rule: str, kinds: tuple[str, ...]) -> None:
        self.arity = arity
        self.rule = rule
        self.kinds = kinds


class ElementwiseOp(Op):
    """An op that works element by element on tensors of one shape, or on scalars. One subclass a row; see `declare_elementwise`."""

    __slots__ = ()
    row: ClassVar[Row]

    inputs: list[Value] = variadic()
    result: Value = result()

    def infer(self) -> list[Type]:
        return [infer_elementwise(self.name, self.row, [v.type for v in self.operands])]


def infer_elementwise(name: str, row: Row, types: list[Type]) -> Type:
    """The result type of an elementwise op; ValueError tells what does not fit."""
    from_types = types[1:] if row.rule == "select" else types
    if len(types) != row.arity:
        raise ValueError(f"{name} takes {row.arity} operands, not {len(types)}")
    first = from_types[0]
    for t in from_types[1:]:
        if t is not first:
            raise ValueError(f"{name}: operand types {first} and {t} differ")
    element = first.element if isinstance(first, TensorType) else first
    kind = element.kind if isinstance(element, DType) else "pointer"
    if kind not in row.kinds:
        raise ValueError(f"{name} does not take {first}")
    return RULES[row.rule](types)


def _bool_like(t: Type) -> Type:
    return t.with_element(I1) if isinstance(t, TensorType) else I1


def _select(types: list[Type]) -> Type:
    if types[0] is not _bool_like(types[1]):
        raise ValueError(f"select: condition {types[0]} does not fit {types[1]}")
    return types[1]


RULES: dict[str, Callable[[list[Type]], Type]] = {
    "same": lambda types: types[0],
    "compare": lambda types: _bool_like(types[0]),
    "test": lambda types: _bool_like(types[0]),
    "select": _select,
}


def declare_elementwise(
    name: str, arity: int, rule: str, kinds: tuple[str, ...], doc: str, *, ulp: float = 0.5, bound: str = ""
) -> type[ElementwiseOp]:
    """Declare one row of an elementwise table as an op class."""
    cls: type[ElementwiseOp] = type(name.replace(".", "_"), (ElementwiseOp,), {"__slots__": (), "__doc__": doc})
    spec = OpSpec(name, cls, doc)
    spec.fields = [ElementwiseOp.__dict__["inputs"]]
    spec.operands = [ElementwiseOp.__dict__["inputs"]]
    spec.results = [ElementwiseOp.__dict__["result"]]
    spec.layout = "elementwise"
    spec.ulp = ulp
    spec.bound = bound
    cls.spec = spec
    cls.row = Row(arity, rule, kinds)
    OPS[name] = spec
    return cls


def elementwise(name: str, *inputs: Value, loc: Loc) -> ElementwiseOp:
    """Make an elementwise op by name."""
    cls = OPS[name].cls
    return cls(list(inputs), loc=loc)  # type: ignore[call-arg, return-value]
