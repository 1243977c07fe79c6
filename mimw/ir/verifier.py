"""Checks that a program is well formed. Bad IR is a fault of ours: every finding is an `InternalError` at its line.

What is checked:

- Structure: every op knows its block, every region its op; each declared operand, attribute, region and result is
  there in the declared number; attributes have a legal value.
- Uses: `Value.users` names exactly the ops that take the value, once per use.
- Visibility: an operand is defined earlier in the same block or in a block around.
- Types: each op's results have the types that `infer` says, apart from layouts; `op.verify()` is satisfied.
- Blocks: each ends in a terminator and has none before. `yield` fits the op around; `break` and `continue` stand in a
  loop of the same function body and carry its types; `return` carries the results of the innermost `control.inlined`,
  or nothing in the kernel's own body; `unreachable` follows an op that leaves on every path. An `if` that leaves on
  both sides has no results, and nothing but `unreachable` follows it.
- Block arguments fit the op around: induction variable and carried values; elements of reduced tiles; the kernel's
  arguments.
- A tile in flight goes only to `mma` ops, terminators and the ops that carry values.

Works from the declarations; of the structured control flow it knows the names and the rules above.
"""

from __future__ import annotations

from mimw.diagnostics import InternalError
from mimw.ir.core import Block, Function, Module, OpBase, Value
from mimw.ir.opdef import Op, OpSpec
from mimw.ir.types import I1, InflightType, MemDescType, TensorDescType, TensorType, Type, element_of

_COMBINES = ("tensor.reduce", "tensor.scan")


def verify(module: Module) -> None:
    """Raise `InternalError` at the first thing that is wrong with a module."""
    verify_function(module.function)


def verify_function(function: Function) -> None:
    """Raise `InternalError` at the first thing that is wrong with a kernel."""
    v = _Verifier(function)
    block = function.block
    types = [a.type for a in function.arguments]
    if [a.type for a in block.args] != types:
        have = [a.type for a in block.args]
        raise InternalError(f"kernel {function.name}: its block takes {have}, not {types}", function.loc)
    v.define(block.args)
    v.block(block, _Around(None, None, [], None))
    v.check_uses()


class _Around:
    """What stands around a block: the loop to break from, the results, what `yield` gives (None: no place)."""

    __slots__ = ("loop", "op", "returns", "yields")

    def __init__(
        self, op: OpBase | None, loop: list[Type] | None, returns: list[Type] | None, yields: list[Type] | None
    ) -> None:
        self.op = op
        self.loop = loop
        self.returns = returns
        self.yields = yields


class _Verifier:
    __slots__ = ("function", "uses", "values", "visible")

    def __init__(self, function: Function) -> None:
        self.function = function
        self.visible: set[Value] = set()
        self.values: list[Value] = []
        self.uses: dict[Value, list[OpBase]] = {}

    def define(self, values: list[Value]) -> None:
        self.visible.update(values)
        self.values.extend(values)

    def block(self, block: Block, around: _Around) -> None:
        if not block.ops:
            raise InternalError("a block is empty", around.op.loc if around.op else self.function.loc)
        mine: list[Value] = []
        last = block.ops[-1]
        for i, op in enumerate(block.ops):
            if op.parent is not block:
                raise _error(op, "does not know the block that it stands in")
            if op.spec.terminator != (op is last):
                raise _error(op, "ends a block but is no terminator" if op is last else "stands before its block's end")
            self.operands(op)
            _check_shape(op)
            _check_types(op)
            for index, region in enumerate(op.regions):
                if region.parent is not op or region.block.parent is not region:
                    raise _error(op, "has a region or block that belongs elsewhere")
                self.region(op, index, around)
            if op is last:
                _check_terminator(op, block.ops[i - 1] if i else None, around)
            self.define(op.results)
            mine.extend(op.results)
        self.visible.difference_update(mine)

    def operands(self, op: OpBase) -> None:
        for v in op.operands:
            if v not in self.visible:
                raise _error(op, f"uses {v!r}, which is not visible here")
            self.uses.setdefault(v, []).append(op)
            if isinstance(v.type, InflightType) and not _takes_inflight(op):
                raise _error(op, f"takes {v!r}, which is still in flight")

    def region(self, op: OpBase, index: int, around: _Around) -> None:
        block = op.regions[index].block
        args, inner = _region_rules(op, index, around)
        if args is not None and [a.type for a in block.args] != args:
            raise _error(op, f"region {index} takes {[a.type for a in block.args]}, not {args}")
        self.define(block.args)
        self.block(block, inner)
        self.visible.difference_update(block.args)

    def check_uses(self) -> None:
        for v in self.values:
            used = self.uses.get(v, [])
            if len(used) != len(v.users) or (used and sorted(map(id, used)) != sorted(map(id, v.users))):
                where = v.owner.loc if isinstance(v.owner, OpBase) else self.function.loc
                raise InternalError(f"the users of {v!r} are {used}, the list says {v.users}", where)


def _error(op: OpBase, message: str) -> InternalError:
    return InternalError(f"{op.name} {message}", op.loc)


def _takes_inflight(op: OpBase) -> bool:
    return op.spec.terminator or bool(op.regions) or op.spec.name.startswith("mma.")


def _check_shape(op: OpBase) -> None:
    spec = op.spec
    if len(op.segments) != len(spec.operands) or sum(op.segments) != len(op.operands):
        raise _error(op, f"has operand counts {op.segments} for {len(op.operands)} operands")
    for field, count in zip(spec.operands, op.segments, strict=True):
        role = field.role
        if (role == "operand" and count != 1) or (role == "optional" and count > 1):
            raise _error(op, f"has {count} values for {field.name}")
    if len(op.attrs) != len(spec.attrs):
        raise _error(op, f"has attributes {sorted(op.attrs)}, declared are {[f.name for f in spec.attrs]}")
    for field in spec.attrs:
        if field.name not in op.attrs:
            raise _error(op, f"has no attribute {field.name}")
        if field.choices and op.attrs[field.name] not in field.choices:
            raise _error(op, f"has {field.name} = {op.attrs[field.name]!r}, legal are {field.choices}")
    variadic = any(f.role == "regions" for f in spec.regions)
    if len(op.regions) < len(spec.regions) if variadic else len(op.regions) != len(spec.regions):
        raise _error(op, f"has {len(op.regions)} regions, declared are {len(spec.regions)}")
    _check_results(op, spec)


def _check_results(op: OpBase, spec: OpSpec) -> None:
    fixed = not spec.results or spec.results[-1].role == "result"
    if (fixed and len(op.results) != len(spec.results)) or len(op.results) < len(spec.results) - 1:
        raise _error(op, f"has {len(op.results)} results, declared are {len(spec.results)}")
    for i, r in enumerate(op.results):
        if r.owner is not op or r.index != i:
            raise _error(op, f"has a result {i} that belongs elsewhere")


def strip_layout(t: Type) -> Type:
    """The type without layouts."""
    if isinstance(t, TensorType):
        return t if t.layout is None else t.with_layout(None)
    if isinstance(t, MemDescType):
        return t if t.layout is None else MemDescType(t.shape, t.dtype, t.space, None, t.alloc_shape)
    if isinstance(t, InflightType):
        return t if t.tensor.layout is None else InflightType(t.tensor.with_layout(None))
    if isinstance(t, TensorDescType):
        return t if t.layout is None else TensorDescType(t.block_shape, t.dtype)
    return t


def _check_types(op: OpBase) -> None:
    assert isinstance(op, Op)
    try:
        want = op.infer()
        op.verify()
    except (ValueError, TypeError) as e:
        raise _error(op, f"is not well formed: {e}") from e
    have = [r.type for r in op.results]
    if have != want and [strip_layout(t) for t in have] != [strip_layout(t) for t in want]:
        raise _error(op, f"has results of types {have}, not {want}")


def _region_rules(op: OpBase, index: int, around: _Around) -> tuple[list[Type] | None, _Around]:
    """The types of a region's block arguments (None: not known), and what its exits may carry."""
    name = op.spec.name
    outs = [r.type for r in op.results]
    if name == "control.for":
        return [op.operands[0].type, *outs], _Around(op, outs, around.returns, outs)
    if name == "control.while":
        if index == 0:
            return outs, _Around(op, None, None, [I1])
        return outs, _Around(op, outs, around.returns, outs)
    if name == "control.if":
        if outs and all(_leaves(r.block) for r in op.regions):
            raise _error(op, "has results and leaves on both sides")
        return [], _Around(op, around.loop, around.returns, outs)
    if name == "task.partition":
        return [], _Around(op, None, None, [])
    if name == "control.inlined":
        return [], _Around(op, None, outs, outs)
    if name in _COMBINES:
        elements: list[Type] = [element_of(v.type) for v in op.operands]
        return elements * 2, _Around(op, None, None, elements)
    return None, _Around(op, None, None, None)


def _leaves(block: Block) -> bool:
    return bool(block.ops) and block.ops[-1].spec.name != "control.yield"


def _always_leaves(op: OpBase) -> bool:
    return op.spec.name == "control.if" and all(_leaves(r.block) for r in op.regions)


def _check_terminator(op: OpBase, before: OpBase | None, around: _Around) -> None:
    name = op.spec.name
    if name == "control.unreachable":
        if before is None or not before.regions:
            raise _error(op, "does not follow an op that leaves")
        if before.spec.name == "control.if" and not _always_leaves(before):
            raise _error(op, "follows an if that does not leave on both sides")
        return
    if before is not None and _always_leaves(before):
        raise _error(op, "cannot be reached: the if before leaves on both sides")
    want = {
        "control.yield": around.yields,
        "control.break": around.loop,
        "control.continue": around.loop,
        "control.return": around.returns,
    }.get(name)
    if want is None:
        place = f"in {around.op.name}" if around.op is not None else "in the kernel's body"
        raise _error(op, f"has no place {place}")
    have = [v.type for v in op.operands]
    if have != want:
        raise _error(op, f"carries {have}, not {want}")
