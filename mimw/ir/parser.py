"""Reads the text that `printer.py` writes. Works from the declarations: ops are looked up in `opdef.OPS`, which the
caller has filled by importing `mimw.ir.ops`. Checks the syntax and the constructors' rules; well-formedness is the
verifier's business.

The grammar (``//`` starts a comment; line breaks mean nothing)::

    module    = { "#" name "=" layout } "kernel" "@" name "(" arguments ")" { word "=" value } [ "options" dict ]
                "{" { op } "}" [ loc ]
    op        = [ values "=" ] opname [ operands ] [ dict ] { region } [ ":" types ] [ loc ]
    operands  = ( value | "[" values "]" | word "=" value ) { "," ... }
    region    = word [ "(" { value ":" type } ")" ] "{" { op } "}"
    loc       = "loc" "(" string ":" int ":" int { "at" string ":" int ":" int } ")"
"""

from __future__ import annotations

import json
import re
from typing import Any

from mimw.diagnostics import UNKNOWN, Loc
from mimw.ir.core import Argument, Block, Function, Module, OpBase, Region, Value
from mimw.ir.layout import Layout, parse_layout
from mimw.ir.opdef import OPS, OpSpec
from mimw.ir.shared_layout import SharedLayout, parse_shared_layout
from mimw.ir.types import (
    DTYPES,
    BarrierType,
    DType,
    Element,
    InflightType,
    MemDescType,
    PointerType,
    TensorDescType,
    TensorType,
    TokenType,
    Type,
)

_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+")
_VALUE = re.compile(r"%[A-Za-z0-9_.]+")
_ALIAS = re.compile(r"#[A-Za-z0-9_]+")
_INT = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?(?:inf\b|nan\b|\d+(\.\d*)?([eE][-+]?\d+)?)")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_DIMS = re.compile(r"(?:\d+x)*")
_SIZES = re.compile(r"\d+(?:x\d+)*")
_LAYOUT = re.compile(r"(?:layout|shared)<[^>]*>")
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "none": None}


class ParseError(ValueError):
    """IR text is not what the grammar or an op's declaration wants; `line` and `column` (1-based) say where."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"{line}:{column}: {message}")
        self.message = message
        self.line = line
        self.column = column


def parse_module(text: str, *, file: str | None = None) -> Module:
    """The module that the text describes. Ops without ``loc`` get their place in the text when `file` names it.

    Raises `ParseError`.
    """
    p = _Parser(text, file)
    module = Module(p.kernel())
    p.end()
    return module


class _Parser:
    __slots__ = ("aliases", "file", "pos", "scope", "text")

    def __init__(self, text: str, file: str | None) -> None:
        self.text = text
        self.pos = 0
        self.file = file
        self.aliases: dict[str, Layout | SharedLayout] = {}
        self.scope: dict[str, Value] = {}
        self.skip()

    # -- characters --------------------------------------------------------------------------------------------------

    def skip(self) -> None:
        m = _SPACE.match(self.text, self.pos)
        assert m is not None
        self.pos = m.end()

    def place(self, pos: int | None = None) -> tuple[int, int]:
        pos = self.pos if pos is None else pos
        return self.text.count("\n", 0, pos) + 1, pos - self.text.rfind("\n", 0, pos)

    def fail(self, message: str, pos: int | None = None) -> ParseError:
        return ParseError(message, *self.place(pos))

    def found(self) -> str:
        m = re.compile(r"[\w.%@#]+|.", re.DOTALL).match(self.text, self.pos)
        return repr(m.group()) if m else "the end of the text"

    def maybe(self, pattern: re.Pattern[str]) -> str | None:
        m = pattern.match(self.text, self.pos)
        if m is None or not m.group():
            return None
        self.pos = m.end()
        self.skip()
        return m.group()

    def want(self, pattern: re.Pattern[str], what: str) -> str:
        got = self.maybe(pattern)
        if got is None:
            raise self.fail(f"{what} is wanted, not {self.found()}")
        return got

    def at(self, token: str) -> bool:
        return self.text.startswith(token, self.pos)

    def take(self, token: str) -> bool:
        if not self.at(token):
            return False
        self.pos += len(token)
        self.skip()
        return True

    def need(self, token: str) -> None:
        if not self.take(token):
            raise self.fail(f"{token!r} is wanted, not {self.found()}")

    def end(self) -> None:
        if self.pos != len(self.text):
            raise self.fail(f"the text goes on with {self.found()}")

    # -- types and attribute values --------------------------------------------------------------------------------

    def type(self) -> Type:
        start = self.pos
        word = self.want(_WORD, "a type")
        if word in DTYPES:
            return DTYPES[word]
        if word not in _TYPES:
            raise self.fail(f"{word!r} is not a type", start)
        self.need("<")
        found = _TYPES[word](self)
        self.need(">")
        return found

    def element(self) -> Element:
        start = self.pos
        t = self.type()
        if not isinstance(t, (DType, PointerType)):
            raise self.fail(f"{t} cannot be an element", start)
        return t

    def scalar(self) -> DType:
        start = self.pos
        t = self.type()
        if not isinstance(t, DType):
            raise self.fail(f"a scalar type is wanted, not {t}", start)
        return t

    def dims(self) -> tuple[int, ...]:
        m = _DIMS.match(self.text, self.pos)
        assert m is not None
        self.pos = m.end()
        return tuple(int(d) for d in m.group().split("x")[:-1])

    def layout(self) -> Layout | SharedLayout:
        start = self.pos
        alias = self.maybe(_ALIAS)
        if alias is not None:
            if alias not in self.aliases:
                raise self.fail(f"{alias} is not defined", start)
            return self.aliases[alias]
        text = self.want(_LAYOUT, "a layout")
        try:
            return parse_layout(text) if text.startswith("layout") else parse_shared_layout(text)
        except ValueError as e:
            raise self.fail(str(e), start) from e

    def attribute(self) -> Any:
        if self.at('"'):
            return json.loads(self.want(_STRING, "a string"))
        if self.at("["):
            return self.attributes_in_brackets()
        number = self.maybe(_NUMBER)
        if number is not None:
            return int(number) if _INT.fullmatch(number) else float(number)
        if self.at("#") or self.at("layout<") or self.at("shared<"):
            return self.layout()
        for word, value in _CONSTANTS.items():
            if re.compile(rf"{word}\b").match(self.text, self.pos):
                self.take(word)
                return value
        return self.type()

    def attributes_in_brackets(self) -> tuple[Any, ...]:
        self.need("[")
        items: list[Any] = []
        while not self.at("]"):
            items.append(self.attribute())
            if not self.take(","):
                break
        self.need("]")
        return tuple(items)

    def dictionary(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.need("{")
        while not self.at("}"):
            start = self.pos
            key = self.want(_WORD, "a name")
            if key in found:
                raise self.fail(f"{key} is given twice", start)
            self.need("=")
            found[key] = self.attribute()
            if not self.take(","):
                break
        self.need("}")
        return found

    def location(self) -> Loc | None:
        if not re.compile(r"loc\s*\(").match(self.text, self.pos):
            return None
        self.need("loc")
        self.need("(")
        places: list[tuple[str, int, int]] = []
        while True:
            file = json.loads(self.want(_STRING, "a file name"))
            self.need(":")
            line = int(self.want(_INT, "a line"))
            self.need(":")
            places.append((file, line, int(self.want(_INT, "a column"))))
            if not self.take("at"):
                break
        self.need(")")
        loc: Loc | None = None
        for file, line, column in reversed(places):
            loc = Loc(file, line, column, call_site=loc)
        return loc

    def location_or(self, start: int) -> Loc:
        return self.location() or (Loc(self.file, *self.place(start)) if self.file is not None else UNKNOWN)

    # -- values ------------------------------------------------------------------------------------------------------

    def use(self) -> Value:
        start = self.pos
        name = self.want(_VALUE, "a value")
        if name not in self.scope:
            raise self.fail(f"{name} is not defined here", start)
        return self.scope[name]

    def define(self, value: Value, name: str, pos: int) -> None:
        if name in self.scope:
            raise self.fail(f"{name} is defined twice", pos)
        value.name = "" if name[1:].isdigit() else name[1:]
        self.scope[name] = value

    def typed_values(self) -> list[tuple[str, Type, int, dict[str, Any]]]:
        """``(%a: type {attributes}, ...)`` as (name, type, position, attributes)."""
        found: list[tuple[str, Type, int, dict[str, Any]]] = []
        self.need("(")
        while not self.at(")"):
            start = self.pos
            name = self.want(_VALUE, "an argument")
            self.need(":")
            t = self.type()
            found.append((name, t, start, self.dictionary() if self.at("{") else {}))
            if not self.take(","):
                break
        self.need(")")
        return found

    # -- ops ---------------------------------------------------------------------------------------------------------

    def kernel(self) -> Function:
        while self.at("#"):
            alias = self.want(_ALIAS, "a layout's name")
            self.need("=")
            self.aliases[alias] = self.layout()
        start = self.pos
        self.need("kernel")
        self.need("@")
        name = self.want(_WORD, "a name")
        arguments: list[Argument] = []
        named = self.typed_values()
        for text, t, pos, attrs in named:
            if attrs.keys() - {"divisor", "below"}:
                raise self.fail(f"an argument has a divisor and a bound, not {sorted(attrs)}", pos)
            known = attrs.get("divisor", 1), None, attrs.get("below", 0)
            arguments.append(Argument("" if text[1:].isdigit() else text[1:], t, *known))
        function = Function(name, arguments, UNKNOWN)
        for value, (text, _, pos, _) in zip(function.block.args, named, strict=True):
            self.define(value, text, pos)
        self.launch_options(function)
        self.ops(function.block)
        function.loc = self.location_or(start)
        return function

    def launch_options(self, function: Function) -> None:
        while not self.at("{"):
            start = self.pos
            word = self.want(_WORD, "'{'")
            if word == "options":
                function.options = self.dictionary()
                continue
            self.need("=")
            value = int(self.want(_INT, "a number"))
            if word == "num_warps":
                function.num_warps = value
            elif word == "num_stages":
                function.num_stages = value
            else:
                raise self.fail(f"a kernel has num_warps, num_stages and options, not {word}", start)

    def ops(self, block: Block) -> None:
        self.need("{")
        before = dict(self.scope)
        while not self.at("}"):
            block.append(self.op())
        self.need("}")
        self.scope = before

    def op(self) -> OpBase:
        start = self.pos
        names: list[tuple[str, int]] = []
        if self.at("%"):
            names.append((self.want(_VALUE, "a result"), start))
            while self.take(","):
                pos = self.pos
                names.append((self.want(_VALUE, "a result"), pos))
            self.need("=")
        at = self.pos
        name = self.want(_OP_NAME, "an op")
        if name not in OPS:
            raise self.fail(f"{name} is not an op", at)
        spec = OPS[name]
        given: dict[str, Any] = {}
        self.operands(spec, given)
        if self.at("{"):
            self.op_attributes(spec, given)
        for field in spec.regions:
            if field.role == "regions":
                given[field.name] = many = [self.region(field.name)]
                while self.at(field.name):
                    many.append(self.region(field.name))
            else:
                given[field.name] = self.region(field.name)
        types = self.result_types()
        if len(types) != len(names):
            raise self.fail(f"{name} has {len(names)} results and {len(types)} result types", start)
        self.repeat_types(spec, given, types)
        op = self.construct(spec, given, types, self.location_or(at), at)
        for result, (text, pos) in zip(op.results, names, strict=True):
            self.define(result, text, pos)
        return op

    def operands(self, spec: OpSpec, given: dict[str, Any]) -> None:
        fields = spec.operands
        bare = len(fields) == 1 and fields[0].role == "variadic"
        if bare:
            given[fields[0].name] = self.value_list() if self.at("%") else []
            return
        first = True
        for field in fields:
            if field.role == "variadic" and first and not self.at("["):
                given[field.name] = []
                continue
            if field.role == "optional":
                mark = self.pos
                separated = first or self.take(",")
                if not separated or self.maybe(_WORD) != field.name or not self.take("="):
                    self.pos = mark
                    continue
                given[field.name] = self.use()
            else:
                if not first:
                    self.need(",")
                given[field.name] = self.use() if field.role == "operand" else self.bracketed_values()
            first = False
        if self.take(","):
            raise self.fail(f"{spec.name} has no operand {self.found()} here")

    def value_list(self) -> list[Value]:
        values = [self.use()]
        while self.take(","):
            values.append(self.use())
        return values

    def bracketed_values(self) -> list[Value]:
        self.need("[")
        values = [] if self.at("]") else self.value_list()
        self.need("]")
        return values

    def op_attributes(self, spec: OpSpec, given: dict[str, Any]) -> None:
        start = self.pos
        attrs = self.dictionary()
        unknown = attrs.keys() - {f.name for f in spec.attrs}
        if unknown:
            raise self.fail(f"{spec.name} has no attribute {sorted(unknown)[0]}", start)
        given.update(attrs)

    def region(self, name: str) -> Region:
        start = self.pos
        if self.want(_WORD, f"region {name!r}") != name:
            raise self.fail(f"region {name!r} is wanted", start)
        outer = dict(self.scope)
        region = Region()
        if self.at("("):
            for text, t, pos, _ in self.typed_values():
                self.define(region.block.add_arg(t), text, pos)
        self.ops(region.block)
        self.scope = outer
        return region

    def result_types(self) -> list[Type]:
        types: list[Type] = []
        if self.take(":"):
            types.append(self.type())
            while self.take(","):
                types.append(self.type())
        return types

    def repeat_types(self, spec: OpSpec, given: dict[str, Any], types: list[Type]) -> None:
        for field in spec.attrs:
            if field.name == "type" and "type" not in given and len(types) == 1:
                given["type"] = types[0]
            elif field.name == "types" and "types" not in given:
                given["types"] = tuple(types)

    def construct(self, spec: OpSpec, given: dict[str, Any], types: list[Type], loc: Loc, at: int) -> OpBase:
        cls: Any = spec.cls
        try:
            return cls(loc=loc, result_types=types, **given)
        except (TypeError, ValueError) as e:
            raise self.fail(str(e), at) from e


# -- types with arguments; each reads what stands between < and > ------------------------------------------------------


def _pointer(p: _Parser) -> Type:
    pointee = p.scalar()
    return PointerType(pointee, p.want(_WORD, "a space")) if p.take(",") else PointerType(pointee)


def _tensor(p: _Parser) -> TensorType:
    shape = p.dims()
    element = p.element()
    start = p.pos
    layout = p.layout() if p.take(",") else None
    if isinstance(layout, SharedLayout):
        raise p.fail("a tensor has a register layout", start)
    return TensorType(shape, element, layout)


def _memdesc(p: _Parser) -> Type:
    shape = p.dims()
    dtype = p.scalar()
    p.need(",")
    space = p.want(_WORD, "a space")
    layout: SharedLayout | None = None
    alloc_shape = shape
    while p.take(","):
        start = p.pos
        if p.take("alloc"):
            alloc_shape = tuple(int(d) for d in p.want(_SIZES, "a shape").split("x"))
            continue
        found = p.layout()
        if not isinstance(found, SharedLayout):
            raise p.fail("a memdesc has a shared layout", start)
        layout = found
    return MemDescType(shape, dtype, space, layout, alloc_shape)


def _barrier(p: _Parser) -> Type:
    count = int(p.want(_INT, "a count"))
    p.need(",")
    p.need("arrive")
    arrive = int(p.want(_INT, "an arrive count"))
    remote = p.take(",")
    if remote:
        p.need("remote")
    return BarrierType(count, arrive, remote)


def _tensor_desc(p: _Parser) -> Type:
    shape = p.dims()
    dtype = p.scalar()
    start = p.pos
    layout = p.layout() if p.take(",") else None
    if layout is not None and not isinstance(layout, SharedLayout):
        raise p.fail("a tensor descriptor has a shared layout", start)
    return TensorDescType(shape, dtype, layout)


def _token(p: _Parser) -> Type:
    return TokenType(p.want(_WORD, "a kind"))


def _inflight(p: _Parser) -> Type:
    start = p.pos
    t = p.type()
    if not isinstance(t, TensorType):
        raise p.fail(f"a tensor is wanted, not {t}", start)
    return InflightType(t)


_TYPES = {
    "ptr": _pointer,
    "tensor": _tensor,
    "memdesc": _memdesc,
    "barrier": _barrier,
    "tensor_desc": _tensor_desc,
    "token": _token,
    "inflight": _inflight,
}
