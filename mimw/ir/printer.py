"""Tile IR as text, from the declarations alone: knows no particular op.

    #l0 = layout<128; reg 1 2; lane 4 8 16 32 64; warp . .>
    kernel @add(%x: ptr<f32> {divisor = 16}, %n: i32) num_warps = 4 num_stages = 3 {
      %offs = tensor.arange {start = 0, end = 128} : tensor<128xi32, #l0>
      %v = memory.load %p, mask = %m {cache = "ca"} : tensor<128xf32, #l0>
      %acc = control.for %lo, %hi, %step, [%init] body(%i: i32, %c: f32) {
        control.yield %c
      } : f32
      control.return
    }

An op reads ``results = name operands {attributes} region(arguments) {...} : result types loc("file":line:column)``.
Operands stand in declared order: optional ones as ``name = %v``, variadic ones in brackets (bare when they are the op's
only operands). Attributes that have their default value are left out, and so are `type` and `types` when they repeat
the result types. Layouts are named at the top.
Printing is a fixed point: text that was printed, parsed and printed again is the same text.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mimw.diagnostics import UNKNOWN, Loc
from mimw.ir.core import Argument, Block, Function, Module, OpBase, Value
from mimw.ir.layout import Layout
from mimw.ir.opdef import OpSpec
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.types import InflightType, MemDescType, TensorType, Type

_BAD_CHARACTERS = re.compile(r"[^A-Za-z0-9_.]")


def print_module(module: Module, *, locs: bool = False) -> str:
    """The text of a module (without its remarks); with `locs` each op's place in the source."""
    return print_function(module.function, locs=locs)


def print_function(function: Function, *, locs: bool = False) -> str:
    """The text of a kernel, layout aliases first; ends in a newline."""
    p = _Printer(locs)
    p.function(function)
    return "".join(p.aliases) + "\n".join(p.lines) + "\n"


def print_op(op: OpBase) -> str:
    """One op with its regions, for messages: values that are defined outside keep their plain names."""
    p = _Printer(False)
    p.op(op)
    return "".join(p.aliases) + "\n".join(p.lines)


class _Printer:
    __slots__ = ("aliases", "counts", "indent", "layouts", "lines", "locs", "names", "taken", "types")

    def __init__(self, locs: bool) -> None:
        self.locs = locs
        self.lines: list[str] = []
        self.indent = ""
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.counts: dict[str, int] = {}
        self.aliases: list[str] = []
        self.layouts: dict[Layout | SharedLayout, str] = {}
        self.types: dict[Type, str] = {}

    def function(self, f: Function) -> None:
        arguments = ", ".join(self.argument(a, v) for a, v in zip(f.arguments, f.block.args, strict=True))
        head = f"kernel @{f.name}({arguments}) num_warps = {f.num_warps} num_stages = {f.num_stages}"
        if f.options:
            head += " options {" + ", ".join(f"{k} = {self.attribute(v)}" for k, v in f.options.items()) + "}"
        self.lines.append(f"{head} {{")
        self.block(f.block)
        self.lines.append("}" + (f" {loc_text(f.loc)}" if self.locs else ""))

    def argument(self, a: Argument, v: Value) -> str:
        text = f"{self.name(v)}: {self.type(a.type)}"
        known = [f"divisor = {a.divisor}"] if a.divisor != 1 else []
        known += [f"below = {a.below}"] if a.below else []
        return f"{text} {{{', '.join(known)}}}" if known else text

    def block(self, block: Block) -> None:
        outer = self.indent
        self.indent += "  "
        for op in block.ops:
            self.op(op)
        self.indent = outer

    def op(self, op: OpBase) -> None:
        spec = op.spec
        text = self.indent
        if op.results:
            text += ", ".join([self.name(r) for r in op.results]) + " = "
        text += spec.name
        operands = self.operands(op, spec)
        if operands:
            text += f" {operands}"
        attrs = self.attributes(op, spec)
        if attrs:
            text += f" {{{attrs}}}"
        for i, region in enumerate(op.regions):
            field = spec.regions[min(i, len(spec.regions) - 1)]
            block = region.block
            args = ", ".join([f"{self.name(a)}: {self.type(a.type)}" for a in block.args])
            self.lines.append(f"{text} {field.name}({args}) {{" if args else f"{text} {field.name} {{")
            self.block(block)
            text = f"{self.indent}}}"
        if op.results:
            text += " : " + ", ".join([self.type(r.type) for r in op.results])
        if self.locs and op.loc is not UNKNOWN:
            text += f" {loc_text(op.loc)}"
        self.lines.append(text)

    def operands(self, op: OpBase, spec: OpSpec) -> str:
        parts: list[str] = []
        start = 0
        bare = len(spec.operands) == 1
        for field, count in zip(spec.operands, op.segments, strict=True):
            names = [self.name(v) for v in op.operands[start : start + count]]
            start += count
            if field.role == "operand" or (field.role == "variadic" and bare):
                parts.extend(names)
            elif field.role == "optional":
                parts.extend(f"{field.name} = {n}" for n in names)
            else:
                parts.append(f"[{', '.join(names)}]")
        return ", ".join(parts)

    def attributes(self, op: OpBase, spec: OpSpec) -> str:
        parts: list[str] = []
        for field in spec.attrs:
            value = op.attrs[field.name]
            if field.has_default and value == field.default and type(value) is type(field.default):
                continue
            if repeats_results(field.name, value, [r.type for r in op.results]):
                continue
            parts.append(f"{field.name} = {self.attribute(value)}")
        return ", ".join(parts)

    def attribute(self, value: Any) -> str:
        if value is None or isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (int, float)):
            return repr(value)
        if isinstance(value, str):
            return json.dumps(value)
        if isinstance(value, (tuple, list)):
            items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
            return f"[{', '.join(self.attribute(v) for v in items)}]"
        if isinstance(value, (Layout, SharedLayout)):
            return self.layout(value)
        return self.type(value)

    def type(self, t: Type) -> str:
        found = self.types.get(t)
        if found is None:
            found = self.types[t] = self._type_text(t)
        return found

    def _type_text(self, t: Type) -> str:
        if isinstance(t, TensorType) and t.layout is not None:
            return f"{str(t.with_layout(None))[:-1]}, {self.layout(t.layout)}>"
        if isinstance(t, MemDescType) and t.layout is not None:
            plain = MemDescType(t.shape, t.dtype, t.space, None, t.shape)
            tail = f", alloc {'x'.join(map(str, t.alloc_shape))}" if t.alloc_shape != t.shape else ""
            return f"{str(plain)[:-1]}, {self.layout(t.layout)}{tail}>"
        if isinstance(t, InflightType):
            return f"inflight<{self.type(t.tensor)}>"
        return str(t)

    def layout(self, layout: Layout | SharedLayout) -> str:
        found = self.layouts.get(layout)
        if found is None:
            found = f"#{'l' if isinstance(layout, Layout) else 's'}{len(self.layouts)}"
            self.layouts[layout] = found
            self.aliases.append(f"{found} = {layout}\n")
        return found

    def name(self, v: Value) -> str:
        found = self.names.get(v)
        if found is None:
            found = self.names[v] = self._new_name(v.name)
        return found

    def _new_name(self, hint: str) -> str:
        base = _BAD_CHARACTERS.sub("_", hint)
        if base and base[0].isdigit():
            base = f"_{base}"
        count = self.counts.get(base, 0)
        name = _numbered(base, count)
        while name in self.taken:
            count += 1
            name = _numbered(base, count)
        self.counts[base] = count + 1
        self.taken.add(name)
        return f"%{name}"


def _numbered(base: str, count: int) -> str:
    if not base:
        return str(count)
    return f"{base}_{count}" if count else base


def repeats_results(name: str, value: Any, results: list[Type]) -> bool:
    """Whether an attribute only says the result types once more: the printer leaves it out, the parser puts it back."""
    if name == "type":
        return len(results) == 1 and value is results[0]
    return name == "types" and tuple(value) == tuple(results) and bool(results)


def loc_text(loc: Loc) -> str:
    """``loc("file":line:column)``, with the calls that it was inlined at."""
    places: list[str] = []
    at: Loc | None = loc
    while at is not None:
        places.append(f"{json.dumps(at.file)}:{at.line}:{at.col}")
        at = at.call_site
    return f"loc({' at '.join(places)})"
