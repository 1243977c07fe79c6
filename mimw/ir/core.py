"""What a program is made of: values, ops, blocks, regions, functions, modules, and who uses what.

Knows no particular op. Control flow is structured: a region is one block; bodies end in a terminator (yield, break, continue,
return). Mutation goes through the methods here, so that uses stay true.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from mimw.diagnostics import Loc
from mimw.ir.types import Type

if TYPE_CHECKING:
    from mimw.ir.opdef import OpSpec


class Value:
    """An SSA value: the result of an op or the argument of a block. `name` is a hint from the source (not unique)."""

    __slots__ = ("index", "name", "owner", "type", "users")

    def __init__(self, type: Type, owner: OpBase | Block, index: int, name: str = "") -> None:
        self.type = type
        self.owner = owner
        self.index = index
        self.name = name
        self.users: list[OpBase] = []

    @property
    def defining_op(self) -> OpBase | None:
        """The op whose result this is; None for block arguments."""
        return self.owner if isinstance(self.owner, OpBase) else None

    def replace_by(self, other: Value) -> None:
        """Make every user take `other` instead."""
        if other is self:
            return
        for user in self.users:
            operands = user.operands
            for i, v in enumerate(operands):
                if v is self:
                    operands[i] = other
        other.users.extend(self.users)
        self.users = []
        if not other.name:
            other.name = self.name

    def __repr__(self) -> str:
        return f"%{self.name or hex(id(self))}: {self.type}"


class Block:
    """A list of ops with arguments; the last op of a finished block is a terminator."""

    __slots__ = ("args", "ops", "parent")

    def __init__(self, arg_types: list[Type] | None = None, names: list[str] | None = None) -> None:
        self.parent: Region | None = None
        self.ops: list[OpBase] = []
        self.args: list[Value] = []
        for i, t in enumerate(arg_types or []):
            self.add_arg(t, names[i] if names else "")

    def add_arg(self, type: Type, name: str = "") -> Value:
        """Append an argument."""
        v = Value(type, self, len(self.args), name)
        self.args.append(v)
        return v

    def append(self, op: OpBase) -> OpBase:
        """Put an op at the end."""
        op.parent = self
        self.ops.append(op)
        return op

    def insert_before(self, anchor: OpBase, op: OpBase) -> OpBase:
        """Put an op before another one of this block."""
        op.parent = self
        self.ops.insert(self.ops.index(anchor), op)
        return op

    def insert_after(self, anchor: OpBase, op: OpBase) -> OpBase:
        """Put an op after another one of this block."""
        op.parent = self
        self.ops.insert(self.ops.index(anchor) + 1, op)
        return op

    @property
    def terminator(self) -> OpBase | None:
        """The last op, when it is a terminator."""
        return self.ops[-1] if self.ops and self.ops[-1].spec.terminator else None

    @property
    def parent_op(self) -> OpBase | None:
        """The op that this block's region belongs to; None for a function's body."""
        return self.parent.parent if self.parent is not None else None


class Region:
    """One block that belongs to an op (or is the body of a function)."""

    __slots__ = ("block", "parent")

    def __init__(self, block: Block | None = None) -> None:
        self.parent: OpBase | None = None
        self.block = block if block is not None else Block()
        self.block.parent = self


class OpBase:
    """What all ops share. Subclasses are declared with `mimw.ir.opdef`.

    `operands` is the flat list of all operands; `segments` says how many belong to each declared operand field (0 or 1 for an
    optional one). `attrs` maps attribute names to values. `loc` is where in the user's source the op comes from.
    """

    __slots__ = ("attrs", "loc", "operands", "parent", "regions", "results", "segments")
    spec: ClassVar[OpSpec]

    operands: list[Value]
    segments: tuple[int, ...]
    attrs: dict[str, Any]
    regions: list[Region]
    results: list[Value]
    loc: Loc
    parent: Block | None

    @property
    def name(self) -> str:
        """The op's name, ``family.verb``."""
        return self.spec.name

    def set_operand(self, index: int, value: Value) -> None:
        """Replace one operand of the flat list."""
        self.operands[index].users.remove(self)
        self.operands[index] = value
        value.users.append(self)

    def append_operands(self, values: list[Value]) -> None:
        """Add operands to the last (variadic) field."""
        self.operands.extend(values)
        for v in values:
            v.users.append(self)
        self.segments = (*self.segments[:-1], self.segments[-1] + len(values))

    def add_result(self, type: Type, name: str = "") -> Value:
        """Append a result (for ops with a variadic result)."""
        v = Value(type, self, len(self.results), name)
        self.results.append(v)
        return v

    def drop(self) -> None:
        """Forget the operands (recursively) without looking at the results' users; the caller removes the op from its block."""
        for v in self.operands:
            v.users.remove(self)
        self.operands = []
        self.segments = tuple(0 for _ in self.segments)
        for region in self.regions:
            for op in region.block.ops:
                op.drop()

    def erase(self) -> None:
        """Remove the op from its block. Its results must be unused."""
        for r in self.results:
            if r.users:
                raise ValueError(f"{self.name} is erased while its result is used by {r.users[0].name}")
        self.drop()
        if self.parent is not None:
            self.parent.ops.remove(self)
            self.parent = None

    def walk(self) -> Iterator[OpBase]:
        """This op and all ops inside it, outer before inner, in program order."""
        return self._walk_regions() if self.regions else iter((self,))

    def _walk_regions(self) -> Iterator[OpBase]:
        yield self
        for region in self.regions:
            for op in list(region.block.ops):
                if op.regions:
                    yield from op._walk_regions()
                else:
                    yield op

    def verify(self) -> None:
        """Raise ValueError when the op is not well formed; overridden by declarations that have rules of their own."""

    def __repr__(self) -> str:
        return f"<{self.name} at {self.loc}>"


class Argument:
    """What is known of a kernel argument: its name, type, a divisor of its value (bytes for pointers), its place in the source.

    An integer with `below` is in [0, below); 0 says nothing.
    """

    __slots__ = ("below", "divisor", "loc", "name", "type")

    def __init__(self, name: str, type: Type, divisor: int = 1, loc: Loc | None = None, below: int = 0) -> None:
        self.name = name
        self.type = type
        self.divisor = divisor
        self.loc = loc
        self.below = below


class Function:
    """A kernel: its arguments (block arguments of `body`), launch options, and body, which ends in ``control.return``."""

    __slots__ = ("arguments", "body", "loc", "name", "num_stages", "num_warps", "options")

    def __init__(self, name: str, arguments: list[Argument], loc: Loc, num_warps: int = 4, num_stages: int = 3) -> None:
        self.name = name
        self.arguments = arguments
        self.loc = loc
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.options: dict[str, Any] = {}
        self.body = Region(Block([a.type for a in arguments], [a.name for a in arguments]))

    @property
    def block(self) -> Block:
        """The body's block."""
        return self.body.block

    def walk(self) -> Iterator[OpBase]:
        """All ops, outer before inner, in program order."""
        for op in list(self.block.ops):
            yield from op.walk()


class Module:
    """What is compiled together: one kernel, and notes that passes leave for `inspect` (text with the place it speaks of)."""

    __slots__ = ("function", "remarks")

    def __init__(self, function: Function) -> None:
        self.function = function
        self.remarks: list[tuple[str, Loc, str]] = []

    def remark(self, kind: str, loc: Loc, text: str) -> None:
        """Leave a remark: `kind` is the pass or topic ("layout", "pipeline")."""
        self.remarks.append((kind, loc, text))
