"""From a Python function and a signature to a module of tile IR, and what the result depends on."""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable, Mapping
from typing import Any, Union

from mimw.diagnostics import CompilationError, Loc
from mimw.frontend.calls import CALLS, call
from mimw.frontend.conditions import CONDITIONS
from mimw.frontend.expressions import EXPRESSIONS
from mimw.frontend.local_functions import visit_function, visit_lambda
from mimw.frontend.loops import LOOPS
from mimw.frontend.prune import prune
from mimw.frontend.scope import Frame
from mimw.frontend.source import KernelFunction, source_of
from mimw.frontend.statements import STATEMENTS
from mimw.frontend.tasks import TASKS, check_placement
from mimw.frontend.tracer import Flow, Tracer
from mimw.ir.builder import Builder, building
from mimw.ir.core import Argument, Function, Module, Value
from mimw.ir.ops.control import ReturnOp
from mimw.ir.types import DType, PointerType, TensorDescType
from mimw.language.core import constexpr, is_tuple, tensor
from mimw.language.handles import wrap

_EXPRESSIONS = {**EXPRESSIONS, **CONDITIONS, **CALLS, ast.Lambda: visit_lambda}
_STATEMENTS = {**STATEMENTS, **LOOPS, **TASKS, ast.FunctionDef: visit_function}


class Arg:
    """A run-time parameter: its IR type (scalar dtype, pointer, tensor descriptor), and a number that its value is a multiple of.

    The divisor of a pointer counts bytes. An integer with `below` is in [0, below); 0 says nothing.
    """

    __slots__ = ("below", "divisor", "type")

    def __init__(self, type: DType | PointerType | TensorDescType, divisor: int = 1, below: int = 0) -> None:
        self.type = type
        self.divisor = divisor
        self.below = below

    def __repr__(self) -> str:
        return f"Arg({self.type}, {self.divisor}{f', below {self.below}' if self.below else ''})"


class Const:
    """A compile-time parameter: a constexpr, or a run-time one that is specialised to a value (1, None)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value: Any = constexpr(value).value

    def __repr__(self) -> str:
        return f"Const({self.value!r})"


Signature = Mapping[str, Union[Arg, Const]]
"""A parameter's name to what is known of it; every parameter without a default is there."""


def trace(fn: Callable[..., Any], signature: Signature, num_warps: int = 4, num_stages: int = 3) -> Module:
    """The tile IR of a kernel for one signature. `CompilationError` when the program is wrong."""
    if isinstance(fn, KernelFunction):
        fn = fn.fn
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _trace(fn, signature, num_warps, num_stages)
    finally:
        if collecting:
            gc.enable()


def _trace(fn: Callable[..., Any], signature: Signature, num_warps: int, num_stages: int) -> Module:
    source = source_of(fn)
    loc = source.loc(source.tree)
    places = {
        a.arg: source.loc(a)
        for a in (*source.tree.args.posonlyargs, *source.tree.args.args, *source.tree.args.kwonlyargs)
    }
    arguments, constants = _parameters(fn, signature, places, loc)
    function = Function(fn.__name__, arguments, loc, num_warps, num_stages)
    builder = Builder(function.block, loc)
    frame = Frame(fn, source, None)
    for a, v in zip(arguments, function.block.args, strict=True):
        frame.names[a.name] = wrap(v)
        frame.assigned[a.name] = places.get(a.name, loc)
    frame.names.update(constants)
    for name in constants:
        frame.assigned[name] = places.get(name, loc)
    tracer = Tracer(builder, _EXPRESSIONS, _STATEMENTS, frame, num_warps)
    builder.state = tracer.printed
    builder.inline = Inline(tracer)
    with building(builder):
        for v in constants.values():
            tracer.adopt(v)
        if tracer.body(source.tree.body) is not Flow.LEFT:
            builder.insert(ReturnOp([], loc=loc))
    prune(function)
    check_placement(function)
    if tracer.printed:
        print("".join(tracer.printed), end="")
    module = Module(function)
    for (kind, _, text), at in tracer.remarks.items():
        module.remark(kind, at, text)
    return module


def _parameters(
    fn: Callable[..., Any], signature: Signature, places: dict[str, Loc], loc: Loc
) -> tuple[list[Argument], dict[str, Any]]:
    """Run-time arguments in the function's order, and the constants."""
    code = fn.__code__
    if code.co_flags & 12:
        raise CompilationError(
            "unsupported-syntax",
            f"{fn.__name__} has a * or ** parameter",
            loc,
            hint="a launched kernel names its parameters",
        )
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for name in signature:
        if name not in names:
            raise CompilationError("bad-signature", f"{fn.__name__} has no parameter {name}", loc)
    positional = code.co_varnames[: code.co_argcount]
    defaults: dict[str, Any] = dict(zip(reversed(positional), reversed(fn.__defaults__ or ()), strict=False))
    defaults.update(fn.__kwdefaults__ or {})
    arguments: list[Argument] = []
    constants: dict[str, Any] = {}
    for name in names:
        spec = signature.get(name)
        if isinstance(spec, Arg):
            arguments.append(Argument(name, spec.type, spec.divisor, places.get(name), spec.below))
        elif isinstance(spec, Const):
            constants[name] = spec.value
        elif name in defaults:
            constants[name] = constexpr(defaults[name]).value
        else:
            raise CompilationError(
                "bad-signature",
                f"the signature says nothing of the parameter {name} of {fn.__name__}",
                places.get(name, loc),
            )
    return arguments, constants


class Inline:
    """How `ml.reduce` traces a combine function into a region: installed in the builder."""

    __slots__ = ("tracer",)

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def __call__(self, fn: Any, args: list[Value], loc: Loc) -> list[Value]:
        t = self.tracer
        out = call(t, fn, [wrap(a) for a in args], {}, t.node)
        items = out if is_tuple(out) else (out,)
        return [x.value if isinstance(x, tensor) else x for x in items]
