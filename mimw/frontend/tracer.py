"""The tracing machine: walks a kernel's tree once, keeps frames and slots, sets the place of every op, turns faults
into errors.

Knows no particular statement or expression: those are handlers in two tables (`trace.py` joins them). A handler
takes the tracer and a node. `statement` gives a `Flow`; `expression` a trace-time object: a `tensor`, or a plain
Python constant.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import CodeType
from typing import Any, NoReturn

from mimw.diagnostics import CompilationError, InternalError, Loc, Note
from mimw.frontend import scope
from mimw.frontend.aliases import Torn
from mimw.frontend.scope import Deferred, Edge, Frame, Key, State, Undefined
from mimw.ir.builder import Builder
from mimw.ir.core import Block, OpBase, Region, Value
from mimw.ir.types import Type
from mimw.language.core import is_tuple, tensor


class Flow(IntEnum):
    """How a statement ends: NEXT goes on; BREAK, CONTINUE, RETURN are taken at trace time; LEFT: the block has its
    terminator.
    """

    NEXT = 0
    BREAK = 1
    CONTINUE = 2
    RETURN = 3
    LEFT = 4


Expression = Callable[["Tracer", Any], Any]
Statement = Callable[["Tracer", Any], Flow]


class NeedsRegion(Exception):
    """An inlined function turned out to return from inside a run-time branch or loop: trace it again in a
    `control.inlined`.
    """

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame


class Retype(Exception):
    """A slot that an outer loop carries started from a constant, and turned out to need another type: trace that loop again."""

    def __init__(self, owner: object, key: Key, type: Type) -> None:
        super().__init__()
        self.owner = owner
        self.key = key
        self.type = type


class Flexible:
    """A loop's argument whose type is a guess only, because the slot starts from the constant `start`."""

    __slots__ = ("arg", "key", "owner", "start")

    def __init__(self, arg: Value, owner: object, key: Key, start: int | float) -> None:
        self.arg = arg
        self.owner = owner
        self.key = key
        self.start = start


class Tracer:
    """State of one trace."""

    __slots__ = (
        "builder",
        "depth",
        "expressions",
        "flexible",
        "frame",
        "local_code",
        "node",
        "num_warps",
        "open",
        "printed",
        "records",
        "remarks",
        "statements",
        "torn",
    )

    def __init__(
        self,
        builder: Builder,
        expressions: Mapping[type[ast.AST], Expression],
        statements: Mapping[type[ast.AST], Statement],
        frame: Frame,
        num_warps: int = 4,
    ) -> None:
        self.num_warps = num_warps
        self.builder = builder
        self.expressions = expressions
        self.statements = statements
        self.frame = frame
        self.records: list[Any] = []
        self.printed: list[str] = []
        self.remarks: dict[tuple[str, int, str], Loc] = {}
        self.depth = 0
        self.open: list[Region] = []
        self.flexible: dict[int, Flexible] = {}
        self.torn = Torn()
        self.local_code: dict[ast.AST, CodeType] = {}
        self.node: ast.AST = frame.source.tree

    # Visiting.

    def loc(self, node: ast.AST) -> Loc:
        """The place of a node, with the call that it was inlined at."""
        frame = self.frame
        return frame.source.loc(node, frame.site)

    def error(
        self, code: str, message: str, node: ast.AST, hint: str | None = None, notes: list[Note] | None = None
    ) -> NoReturn:
        """Raise a `CompilationError` at a node."""
        raise CompilationError(code, message, self.loc(node), hint=hint, notes=notes)

    def remark(self, kind: str, text: str) -> None:
        """Leave a remark at the current place, once however often it is traced."""
        self.remarks.setdefault((kind, self.builder.loc.line, text), self.builder.loc)

    def expr(self, node: ast.expr) -> Any:
        """The trace-time object of an expression."""
        handler = self.expressions.get(type(node))
        if handler is None:
            self.error("unsupported-syntax", f"{_words(node)} cannot be used in a kernel", node, _HINTS.get(type(node)))
        return self.guarded(handler, node)

    def stmt(self, node: ast.stmt) -> Flow:
        """Trace one statement."""
        handler = self.statements.get(type(node))
        if handler is None:
            self.error("unsupported-syntax", f"{_words(node)} cannot be used in a kernel", node, _HINTS.get(type(node)))
        return self.guarded(handler, node)

    def body(self, nodes: list[ast.stmt]) -> Flow:
        """Trace statements until one does not go on."""
        for node in nodes:
            flow = self.stmt(node)
            if flow:
                return flow
        return Flow.NEXT

    def guarded(self, handler: Callable[[Tracer, Any], Any], node: ast.AST) -> Any:
        """The one place that sets the place of ops and gives errors of op constructors their place."""
        builder = self.builder
        saved, outer = builder.loc, self.node
        builder.loc = self.loc(node)
        self.node = node
        try:
            return handler(self, node)
        except CompilationError as e:
            if e.loc.line == 0:
                e.loc = builder.loc
            raise
        except (NeedsRegion, Retype, InternalError):
            raise
        except RecursionError as e:
            raise CompilationError(
                "recursion", "the call depth is exceeded", builder.loc, hint="kernels are inlined: no recursion"
            ) from e
        except ValueError as e:
            raise CompilationError("invalid-operation", str(e), builder.loc) from e
        except Exception as e:
            raise InternalError(f"{type(e).__name__}: {e}", builder.loc) from e
        finally:
            builder.loc = saved
            self.node = outer

    # Slots.

    def capture(self) -> State:
        """All slots now."""
        slots: dict[Key, Any] = {}
        slots.update(self.frame.names)
        for r in self.records:
            for f in scope.field_names(r):
                slots[(id(r), f)] = getattr(r, f)
        return State(slots, dict(self.frame.assigned), len(self.records))

    def restore(self, state: State) -> None:
        """Put all slots back, and forget records made since."""
        del self.records[state.record_count :]
        self.frame.names = {key: v for key, v in state.slots.items() if isinstance(key, str)}
        self.frame.assigned = dict(state.assigned)
        for r in self.records:
            for f in scope.field_names(r):
                object.__setattr__(r, f, state.slots[(id(r), f)])

    def set_slot(self, key: Key, value: Any) -> None:
        """Bind one slot."""
        if isinstance(key, str):
            self.frame.names[key] = value
        else:
            for r in self.records:
                if id(r) == key[0]:
                    object.__setattr__(r, key[1], value)
        self.adopt(value)

    def slot_name(self, key: Key) -> str:
        """How messages and values name a slot: the variable, or variable.field."""
        if isinstance(key, str):
            return key
        for name, v in self.frame.names.items():
            if id(v) == key[0]:
                return f"{name}.{key[1]}"
        return f"the field {key[1]}"

    def value_name(self, key: Key) -> str:
        """How the IR names a slot's value."""
        name = self.slot_name(key)
        return name.replace(".", "_") if isinstance(key, str) or "." in name else key[1]

    def adopt(self, value: Any) -> None:
        """Track the mutable records in a value."""
        if is_tuple(value):
            for v in value:
                self.adopt(v)
        elif scope.is_dataclass(value) and not any(r is value for r in self.records):
            self.records.append(value)
            for f in scope.field_names(value):
                self.adopt(getattr(value, f))

    def assign(self, name: str, value: Any, node: ast.AST) -> None:
        """Bind a name, give the value its name."""
        self.frame.names[name] = value
        self.frame.assigned[name] = self.loc(node)
        if isinstance(value, tensor):
            if not value.value.name:
                value.value.name = name
        elif isinstance(value, tuple) or scope.is_dataclass(value):
            self.adopt(value)

    def read(self, name: str, node: ast.AST) -> Any:
        """The value of a bound name (deferred values are made, undefined ones refused)."""
        value = self.frame.names[name]
        if isinstance(value, Deferred):
            value = self.frame.names[name] = value.force()
        elif isinstance(value, Undefined):
            self.refuse_undefined(name, value, node)
        return value

    def refuse_undefined(self, name: str, value: Undefined, node: ast.AST) -> NoReturn:
        """Raise the error of an undefined slot."""
        notes = [Note(text, loc) for text, loc in value.notes]
        self.error(value.code, value.why.format(name=name), node, value.hint, notes)

    # Regions.

    def terminate(self, kind: str, op: OpBase, value: Any = None) -> Edge:
        """Append a terminator whose values come later; the edge that it stands for."""
        block = self.builder.block
        self.builder.insert(op)
        return Edge(kind, block, self.capture(), self.builder.loc, op, value)

    def yield_to(self, values: list[Any]) -> None:
        """Where values do not merge: if one of them has a guessed type that another one can set right, go back to its loop."""
        for v in values:
            guess = self.flexible.get(id(v.value)) if isinstance(v, tensor) else None
            if guess is None:
                continue
            for other in values:
                if isinstance(other, tensor) and other.type is not v.type and scope.fits(guess.start, other.type):
                    raise Retype(guess.owner, guess.key, other.type)

    def region(self) -> Region:
        """A fresh region, open until `attach`: an abandoned trace drops what is in it."""
        out = Region()
        self.open.append(out)
        return out

    def attach(self, regions: list[Region]) -> None:
        """Say that an op owns these regions now."""
        self.open = [r for r in self.open if not any(r is x for x in regions)]

    def mark(self) -> Mark:
        """This moment, to come back to by `rollback`."""
        return Mark(self.builder.block, len(self.builder.block.ops), self.capture(), len(self.open), len(self.printed))

    def rollback(self, mark: Mark) -> None:
        """Erase all ops made since the mark, and restore the slots."""
        for region in self.open[mark.open :]:
            for op in reversed(region.block.ops):
                op.drop()
        for op in reversed(mark.block.ops[mark.count :]):
            op.drop()
        del self.open[mark.open :]
        del mark.block.ops[mark.count :]
        del self.printed[mark.printed :]
        self.restore(mark.state)


class Mark:
    """A moment of a trace: block and number of its ops, slots, open regions, text printed."""

    __slots__ = ("block", "count", "open", "printed", "state")

    def __init__(self, block: Block, count: int, state: State, open: int, printed: int) -> None:
        self.block = block
        self.count = count
        self.state = state
        self.open = open
        self.printed = printed


_HINTS: dict[type[ast.AST], str] = {
    ast.AsyncFunctionDef: "kernels are not coroutines: write a plain def",
    ast.ClassDef: "define the class at module level, as a dataclass or NamedTuple of values",
    ast.Try: "there are no exceptions on the device; use ml.device_assert",
    ast.Raise: "there are no exceptions on the device; use ml.static_assert or ml.device_assert",
    ast.Global: "pass values as arguments and return results",
    ast.Nonlocal: "pass values as arguments and return results",
    ast.Delete: "names need no deletion",
    ast.Import: "import at module level",
    ast.ImportFrom: "import at module level",
    ast.Yield: "return a tuple of values",
    ast.YieldFrom: "return a tuple of values",
    ast.Await: "kernels are not coroutines",
    ast.SetComp: "write a loop over ml.static_range, or a tuple",
    ast.DictComp: "write a loop over ml.static_range, or a tuple",
    ast.GeneratorExp: "write a loop over ml.static_range, or a tuple",
    ast.Dict: "use a dataclass or a NamedTuple",
    ast.Set: "use a tuple",
    ast.Match: "write if / elif / else",
    ast.AsyncFor: "write a plain for",
    ast.AsyncWith: "write a plain with",
}

_WORDS: dict[type[ast.AST], str] = {
    ast.AsyncFunctionDef: "async def",
    ast.ClassDef: "a class definition",
    ast.Try: "try",
    ast.With: "with",
    ast.Delete: "del",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Await: "await",
    ast.SetComp: "a set comprehension",
    ast.DictComp: "a dict comprehension",
    ast.GeneratorExp: "a generator expression",
    ast.Dict: "a dict",
    ast.Set: "a set",
    ast.Import: "import",
    ast.ImportFrom: "import",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
    ast.Raise: "raise",
    ast.Match: "match",
}


def _words(node: ast.AST) -> str:
    return _WORDS.get(type(node), type(node).__name__.lower())
