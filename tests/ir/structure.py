"""Equality of programs by structure: same ops, attributes, types and uses, whatever the values are called."""

from __future__ import annotations

import math
from typing import Any

from mimw.ir.core import Block, Module, OpBase, Value


def difference(a: Module, b: Module) -> str:
    """Where two modules differ first; empty when they are equal."""
    f, g = a.function, b.function
    for what in ("name", "num_warps", "num_stages", "options"):
        if getattr(f, what) != getattr(g, what):
            return f"{what}: {getattr(f, what)!r} and {getattr(g, what)!r}"
    for x, y in zip(f.arguments, g.arguments, strict=True):
        if (x.name, x.type, x.divisor) != (y.name, y.type, y.divisor):
            return f"argument {x.name}"
    return _blocks(f.block, g.block, {})


def _blocks(a: Block, b: Block, same: dict[Value, Value]) -> str:
    if [v.type for v in a.args] != [v.type for v in b.args] or len(a.ops) != len(b.ops):
        return f"blocks {a.args} with {len(a.ops)} ops and {b.args} with {len(b.ops)}"
    same.update(zip(a.args, b.args, strict=True))
    for x, y in zip(a.ops, b.ops, strict=True):
        found = _ops(x, y, same)
        if found:
            return found
    return ""


def _ops(a: OpBase, b: OpBase, same: dict[Value, Value]) -> str:
    if a.name != b.name or a.segments != b.segments or len(a.regions) != len(b.regions):
        return f"{a} and {b}"
    if [same[v] for v in a.operands] != b.operands:
        return f"operands of {a}: {a.operands} and {b.operands}"
    for key, value in a.attrs.items():
        if not _equal(value, b.attrs[key]):
            return f"{key} of {a}: {value!r} and {b.attrs[key]!r}"
    if [r.type for r in a.results] != [r.type for r in b.results]:
        return f"results of {a}"
    for r, s in zip(a.regions, b.regions, strict=True):
        found = _blocks(r.block, s.block, same)
        if found:
            return found
    same.update(zip(a.results, b.results, strict=True))
    return ""


def _equal(x: Any, y: Any) -> bool:
    if isinstance(x, float) and isinstance(y, float):
        return (math.isnan(x) and math.isnan(y)) or (x == y and math.copysign(1, x) == math.copysign(1, y))
    return type(x) is type(y) and x == y
