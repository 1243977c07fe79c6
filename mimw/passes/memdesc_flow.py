"""Which buffer (or descriptor) a value may be: follows memdescs and descriptors from where they are made through views, loops and branches.

`Flow` gives every such value a *home* (the values that must lie alike) and, for memdescs, the home's dimensions that its own dimensions are.
Dimensions count from the last one (-1), so that a ring and its slots agree. Decides nothing; `memdesc_layout` does.
"""

from __future__ import annotations

from collections.abc import Iterator

from mimw.diagnostics import InternalError
from mimw.ir.core import Function, OpBase, Value
from mimw.ir.ops.control import ForOp, WhileOp
from mimw.ir.ops.memory import LocalReinterpretOp, LocalSliceOp, LocalTransOp, LocalViewOp
from mimw.ir.types import MemDescType, TensorDescType, Type

Dims = tuple[int, ...]


class Home:
    """Values that share one layout. `root` is the first value; `members` all, with their dimensions in terms of the root's."""

    __slots__ = ("members", "root")

    def __init__(self, root: Value) -> None:
        self.root = root
        self.members: dict[Value, Dims] = {}


class Flow:
    """The homes of a function's memdescs or descriptors (`kind` says which), in the order in which they are made."""

    def __init__(self, function: Function, kind: type[Type]) -> None:
        self.kind = kind
        self.home: dict[Value, Home] = {}
        roots = [v for v in function.block.args if isinstance(v.type, kind)]
        roots += [r for op in function.walk() if _makes(op, kind) for r in op.results]
        for root in roots:
            self._follow(root)
        self.homes = list(dict.fromkeys(self.home.values()))

    def dims(self, v: Value) -> Dims:
        """Which dimensions of its home a memdesc's dimensions are."""
        return self.home[v].members[v]

    def uses(self, home: Home) -> Iterator[tuple[OpBase, Value, Dims]]:
        """The ops that touch a home's memory or copy through it (not views, not control flow), each with the value that it takes."""
        for v, dims in home.members.items():
            for user in dict.fromkeys(v.users):
                if not _passes_on(user, self.kind):
                    yield user, v, dims

    def _follow(self, root: Value) -> None:
        t = root.type
        dims = tuple(range(-len(t.shape), 0)) if isinstance(t, MemDescType) else ()
        home = Home(root)
        todo = [(root, dims)]
        while todo:
            v, dims = todo.pop()
            other = self.home.get(v)
            if other is not None:
                home = self._join(home, other, v, dims)
                continue
            self.home[v] = home
            home.members[v] = dims
            for user in dict.fromkeys(v.users):
                for i, operand in enumerate(user.operands):
                    if operand is v:
                        todo += [(w, _through(user, dims)) for w in _targets(user, i, self.kind)]

    def _join(self, mine: Home, other: Home, v: Value, dims: Dims) -> Home:
        """Two homes meet at a value: they become one."""
        if mine is other:
            return mine
        if other.members[v] != dims:
            raise InternalError(f"two buffers meet in {v} with dimensions {dims} and {other.members[v]}")
        for w, d in mine.members.items():
            other.members[w] = d
            self.home[w] = other
        return other


def _makes(op: OpBase, kind: type[Type]) -> bool:
    """Whether an op's results are homes of their own."""
    if not op.results or not isinstance(op.results[0].type, kind) or op.regions:
        return False
    return not _passes_on(op, kind)


def same_bits(op: LocalReinterpretOp) -> bool:
    """Whether a reinterpretation only gives the elements another type of equal size: then any layout serves both."""
    a, b = op.src.type, op.type
    assert isinstance(a, MemDescType)
    return a.shape == b.shape and a.dtype.bits == b.dtype.bits and not op.start and b.layout is None


def _passes_on(op: OpBase, kind: type[Type]) -> bool:
    """Whether an op only hands a value on: a view, a loop or branch, a terminator."""
    if op.regions or op.spec.terminator:
        return True
    if kind is TensorDescType:
        return False
    return isinstance(op, (LocalViewOp, LocalTransOp, LocalSliceOp)) or (
        isinstance(op, LocalReinterpretOp) and same_bits(op)
    )


def _through(op: OpBase, dims: Dims) -> Dims:
    if isinstance(op, LocalViewOp):
        return dims[1:]
    if isinstance(op, LocalTransOp):
        return tuple(dims[i] for i in op.order)
    return dims


def _targets(op: OpBase, index: int, kind: type[Type]) -> list[Value]:
    """The values that operand `index` of an op becomes."""
    if isinstance(op, (ForOp, WhileOp)):
        i = index - (len(op.operands) - len(op.results))
        return [op.results[i], *_arguments(op, i)] if i >= 0 else []
    if op.spec.terminator:
        target = _target_of(op)
        if target is None or index >= len(target.results):
            return []
        args = _arguments(target, index) if isinstance(target, (ForOp, WhileOp)) else []
        return [target.results[index], *args]
    if not op.regions and _passes_on(op, kind):
        return [op.results[0]]
    return []


def _arguments(loop: OpBase, i: int) -> list[Value]:
    return [r.block.args[len(r.block.args) - len(loop.results) + i] for r in loop.regions]


def _target_of(op: OpBase) -> OpBase | None:
    """The op whose results (or carried values) a terminator gives."""
    name = op.name
    block = op.parent
    while block is not None:
        around = block.parent_op
        if around is None:
            return None
        loop = isinstance(around, (ForOp, WhileOp))
        if name == "control.yield":
            return None if isinstance(around, WhileOp) and around.condition.block is block else around
        if (name == "control.return" and around.name == "control.inlined") or (name != "control.return" and loop):
            return around
        block = around.parent
    return None
