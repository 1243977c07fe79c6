"""Random programs for tests of the IR's text and verifier: every declared op, with values of legal types."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import mimw.ir.ops  # noqa: F401  (fills the op table)
from mimw.diagnostics import Loc
from mimw.ir.core import Argument, Block, Function, Module, OpBase, Value
from mimw.ir.opdef import OPS, ElementwiseOp, OpSpec
from mimw.ir.ops.control import BreakOp, ContinueOp, ForOp, IfOp, InlinedOp, ReturnOp, UnreachableOp, WhileOp, YieldOp
from mimw.ir.ops.tensor import ReduceOp, ScanOp
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.types import (
    DTYPES,
    F16,
    F32,
    I1,
    I32,
    BarrierType,
    DType,
    MemDescType,
    PointerType,
    TensorDescType,
    TensorType,
    Type,
    element_of,
)
from tests.ir.mimw_fillers import DESC, MIMW_FILLERS, make_handle

HERE = Loc("programs.py", 1, 1)
SCALARS = list(DTYPES.values())
TERMINATORS = {name for name, spec in OPS.items() if spec.terminator}


class Maker:
    """Makes ops at random; `pool` holds the values that are visible."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        arguments = [
            Argument("x", PointerType(F32), 16),
            Argument("n", I32),
            Argument("h", PointerType(F16)),
            Argument("flag", I1),
            Argument("desc", DESC),
        ]
        self.function = Function("random", arguments, HERE)
        self.block = self.function.block
        self.pool: list[Value] = list(self.block.args)

    def module(self, size: int) -> Module:
        """A whole program of about `size` ops, one of each kind when `size` allows."""
        for _ in range(size):
            spec = OPS[self.random.choice(list(OPS))]
            if not spec.terminator:
                self.op(spec)
        self.block.append(ReturnOp([], loc=HERE))
        return Module(self.function)

    def op(self, spec: OpSpec) -> OpBase | None:
        """One op of a kind with random operands and attributes; None when its type rule refused what was tried."""
        for _ in range(30):
            try:
                made = self.attempt(spec)
            except (ValueError, TypeError):
                continue
            self.block.append(made)
            for r in made.results:
                r.name = self.random.choice(["", "a", "acc", "x.1", "3d", "héllo"])
            self.pool.extend(made.results)
            return made
        return None

    def attempt(self, spec: OpSpec) -> OpBase:
        """Construct an op; operands that the attempt leaves unused stay constants of the program."""
        fill = FILLERS.get(spec.name)
        if fill is not None:
            return fill(self)
        if issubclass(spec.cls, ElementwiseOp):
            return self.elementwise(spec)
        raise AssertionError(f"{spec.name} has no filler: add one to FILLERS")

    def elementwise(self, spec: OpSpec) -> OpBase:
        row: Any = spec.cls.row  # type: ignore[attr-defined]
        kinds = [d for d in SCALARS if d.kind in row.kinds]
        t = self.type(self.random.choice(kinds))
        first = [self.value(t.with_element(I1) if isinstance(t, TensorType) else I1)] if row.rule == "select" else []
        cls: Any = spec.cls
        return cls([*first, *[self.value(t) for _ in range(row.arity - len(first))]], loc=HERE)

    # -- parts -----------------------------------------------------------------------------------------------------

    def type(self, element: DType | PointerType) -> Type:
        shape = self.random.choice([(), (1,), (31,), (4, 8), (3, 1, 5)])
        return TensorType(shape, element) if shape else element

    def dtype(self) -> DType:
        return self.random.choice(SCALARS)

    def value(self, t: Type) -> Value:
        """A visible value of a type: an old one, or a new constant (memdescs: an allocation)."""
        old = [v for v in self.pool if v.type is t]
        if old and self.random.random() < 0.7:
            return self.random.choice(old)
        return self.make(t)

    def make(self, t: Type) -> Value:
        from mimw.ir.ops.arith import ConstantOp
        from mimw.ir.ops.memory import LocalAllocOp

        if isinstance(t, (BarrierType, TensorDescType)):
            return make_handle(self, t)
        if isinstance(t, MemDescType):
            op: OpBase = LocalAllocOp(type=t, loc=HERE)
        else:
            e = element_of(t)
            number: Any = 0
            if isinstance(e, DType):
                number = {
                    "float": self.random.choice([0.0, -1.5, 1e-30, float("inf"), 0.1]),
                    "bool": self.random.random() < 0.5,
                }.get(e.kind, self.random.randrange(100))
            op = ConstantOp(number, t, loc=HERE)
        self.block.append(op)
        self.pool.extend(op.results)
        return op.results[0]

    def any_tensor(self, rank: int | None = None, element: DType | None = None) -> Value:
        shapes = [s for s in [(1,), (2,), (31,), (4, 8), (6, 2), (3, 1, 5)] if rank is None or len(s) == rank]
        return self.value(TensorType(self.random.choice(shapes), element or self.dtype()))

    def fill_region(self, block: Block, finish: Any) -> None:
        """Put a few ops into a block, then what `finish(maker)` makes."""
        outer, pool = self.block, self.pool
        self.block, self.pool = block, [*self.pool, *block.args]
        names = [n for n in OPS if n.startswith(("arith.", "math."))]
        for _ in range(self.random.randrange(3)):
            self.op(OPS[self.random.choice(names)])
        block.append(finish(self))
        self.block, self.pool = outer, pool


def _for(m: Maker) -> OpBase:
    carried = [m.value(I32), m.any_tensor()]
    op = ForOp(m.value(I32), m.value(I32), m.value(I32), carried, loc=HERE, unroll=m.random.choice([1, 2]))
    block = op.body.block
    block.add_arg(I32, "i")
    for v in carried:
        block.add_arg(v.type, "acc")
    leave = m.random.choice([YieldOp, BreakOp, ContinueOp])
    m.fill_region(block, lambda m: leave([m.value(v.type) for v in carried], loc=HERE))
    return op


def _while(m: Maker) -> OpBase:
    carried = [m.value(I32)]
    op = WhileOp(carried, loc=HERE)
    for region in op.regions:
        region.block.add_arg(I32, "w")
    m.fill_region(op.condition.block, lambda m: YieldOp([m.value(I1)], loc=HERE))
    m.fill_region(op.body.block, lambda m: YieldOp([m.value(I32)], loc=HERE))
    return op


def _if(m: Maker) -> OpBase:
    types = (F32, m.any_tensor().type)
    op = IfOp(m.value(I1), loc=HERE, types=types)
    for region in op.regions:
        m.fill_region(region.block, lambda m: YieldOp([m.value(t) for t in types], loc=HERE))
    return op


def _inlined(m: Maker) -> OpBase:
    op = InlinedOp(loc=HERE, types=(F32,), callee="f")
    inner = op.body.block

    def leave(m: Maker) -> OpBase:
        branch = IfOp(m.value(I1), loc=HERE)
        for region in branch.regions:
            m.fill_region(region.block, lambda m: ReturnOp([m.value(F32)], loc=HERE))
        m.block.append(branch)
        return UnreachableOp(loc=HERE)

    m.fill_region(inner, leave)
    return op


def _combining(cls: Any) -> Any:
    def make(m: Maker) -> OpBase:
        first = m.any_tensor()
        t: Any = first.type
        srcs = [first, m.value(t.with_element(m.dtype()))]
        extra = {"reverse": m.random.random() < 0.5} if cls is ScanOp else {}
        op = cls(srcs, m.random.randrange(t.rank), loc=HERE, **extra)
        block = op.combine.block
        for v in [*srcs, *srcs]:
            block.add_arg(element_of(v.type))
        m.fill_region(block, lambda m: YieldOp([m.value(element_of(v.type)) for v in srcs], loc=HERE))
        return op

    return make


def _op(name: str, *args: Any, **kwargs: Any) -> OpBase:
    cls: Any = OPS[name].cls
    return cls(*args, loc=HERE, **kwargs)


def _pointers(m: Maker) -> tuple[Value, Value, Value]:
    """A pointer (tile), a mask and a value that fit each other."""
    t = m.type(PointerType(F32))
    like = (lambda e: t.with_element(e)) if isinstance(t, TensorType) else (lambda e: e)
    return m.value(t), m.value(like(I1)), m.value(like(F32))


def _load(m: Maker) -> OpBase:
    p, mask, other = _pointers(m)
    some: dict[str, Any] = m.random.choice([{}, {"mask": mask}, {"mask": mask, "other": other}, {"cache": "cg"}])
    return _op("memory.load", p, **some)


def _store(m: Maker) -> OpBase:
    p, mask, value = _pointers(m)
    return _op("memory.store", p, value, m.random.choice([None, mask]), eviction=m.random.choice(["", "evict_first"]))


def _async_load(m: Maker) -> OpBase:
    t = TensorType((4, 8), PointerType(F16))
    dst = m.value(MemDescType((4, 8), F16))
    return _op("async_copy.load", m.value(t), dst, m.random.choice([None, m.value(t.with_element(I1))]))


def _dot(m: Maker) -> OpBase:
    a, b = m.value(TensorType((16, 8), F16)), m.value(MemDescType((8, 32), F16))
    return _op("mma.dot", a, b, m.value(TensorType((16, 32), F32)), precision=m.random.choice(["tf32", "ieee"]))


def _async_dot(m: Maker) -> OpBase:
    a, b = m.value(MemDescType((64, 16), F16)), m.value(MemDescType((16, 8), F16))
    use_acc = m.random.choice([None, m.value(I1)])
    return _op("mma.async_dot", a, b, m.value(TensorType((64, 8), F32)), use_acc=use_acc)


def _as_inflight(m: Maker) -> OpBase:
    return _op("mma.as_inflight", m.value(TensorType((64, 8), F32)))


def _async_dot_wait(m: Maker) -> OpBase:
    started = _async_dot(m)
    m.block.append(started)
    return _op("mma.async_dot_wait", [started.results[0]], m.random.choice([0, 1]), m.random.random() < 0.5)


def _trans(m: Maker) -> OpBase:
    x = m.any_tensor()
    order = list(range(x.type.rank))  # type: ignore[union-attr]
    m.random.shuffle(order)
    return _op("tensor.trans", x, tuple(order))


def _reshape(m: Maker) -> OpBase:
    return _op("tensor.reshape", m.value(TensorType((4, 8), m.dtype())), (2, 16), m.random.random() < 0.5)


def _local_view(m: Maker) -> OpBase:
    return _op("memory.local_view", m.value(MemDescType((2, 4, 8), F16)), m.value(I32))


def _local_trans(m: Maker) -> OpBase:
    return _op("memory.local_trans", m.value(MemDescType((4, 8), F16)), (1, 0), MemDescType((8, 4), F16))


def _local_reinterpret(m: Maker) -> OpBase:
    plain = SharedLayout.row_major((8, 2))
    source = m.value(MemDescType((4, 8), F16, "shared", SharedLayout.row_major((4, 8))))
    return _op(
        "memory.local_reinterpret", source, MemDescType((8, 2), F16, "shared", plain), start=m.random.choice([0, 16])
    )


def _join(m: Maker) -> OpBase:
    a = m.any_tensor()
    return _op("tensor.join", a, m.value(a.type))


def _cat(m: Maker) -> OpBase:
    a = m.any_tensor()
    return _op("tensor.cat", a, m.value(a.type), axis=m.random.randrange(a.type.rank))  # type: ignore[union-attr]


def _convert_layout(m: Maker) -> OpBase:
    a = m.any_tensor()
    return _op("tensor.convert_layout", a, a.type, reason='the "load" wants it\n')


def _inline_asm(name: str, m: Any) -> OpBase:
    t = m.type(F32)
    text = 'add.f32 $0, $2, $3;\n// "quoted"\nmov.b32 $1, 0;'
    return _op(name, [m.value(t), m.value(t)], text, "=f,=r,f,f", (F32, I32), 1)


FILLERS: dict[str, Any] = {
    **MIMW_FILLERS,
    "arith.constant": lambda m: m.make(m.type(m.dtype())).owner and _op("arith.constant", 7, I32),
    "arith.cast": lambda m: _op("arith.cast", m.value(m.type(m.dtype())), m.dtype(), saturate=m.random.random() < 0.5),
    "arith.bitcast": lambda m: _op("arith.bitcast", m.value(m.type(F32)), DTYPES["u32"]),
    **{name: partial(_inline_asm, name) for name in ("inline.asm", "inline.asm_volatile")},
    "arith.hint": lambda m: _op("arith.hint", m.value(m.type(I32)), divisor=(16,)),
    "tensor.splat": lambda m: _op("tensor.splat", m.value(m.dtype()), (3, 5)),
    "tensor.arange": lambda m: _op("tensor.arange", -3, 29),
    "tensor.expand_dims": lambda m: _op("tensor.expand_dims", m.any_tensor(), m.random.randrange(2)),
    "tensor.broadcast": lambda m: _op("tensor.broadcast", m.any_tensor(1), (31,)),
    "tensor.reshape": _reshape,
    "tensor.trans": _trans,
    "tensor.join": _join,
    "tensor.split": lambda m: _op("tensor.split", m.value(TensorType((6, 2), m.dtype()))),
    "tensor.extract_slice": lambda m: _op(
        "tensor.extract_slice", m.value(TensorType((6, 8), m.dtype())), (0, 4), (6, 2)
    ),
    "tensor.cat": _cat,
    "tensor.reduce": _combining(ReduceOp),
    "tensor.scan": _combining(ScanOp),
    "tensor.convert_layout": _convert_layout,
    "memory.ptr_add": lambda m: _op("memory.ptr_add", m.value(PointerType(F32)), m.value(I32)),
    "memory.load": _load,
    "memory.store": _store,
    "memory.local_alloc": lambda m: _op("memory.local_alloc", m.any_tensor(2, F16), MemDescType((4, 8), F16)),
    "memory.local_view": _local_view,
    "memory.local_trans": _local_trans,
    "memory.local_reinterpret": _local_reinterpret,
    "memory.local_load": lambda m: _op("memory.local_load", m.value(MemDescType((4, 8), F16))),
    "memory.local_store": lambda m: _op(
        "memory.local_store", m.value(MemDescType((4, 8), F16)), m.value(TensorType((4, 8), F16))
    ),
    "async_copy.load": _async_load,
    "async_copy.commit_group": lambda m: _op("async_copy.commit_group"),
    "async_copy.wait_group": lambda m: _op("async_copy.wait_group", m.random.randrange(3)),
    "barrier.cta_sync": lambda m: _op("barrier.cta_sync"),
    "barrier.fence_async_shared": lambda m: _op("barrier.fence_async_shared"),
    "mma.dot": _dot,
    "mma.async_dot": _async_dot,
    "mma.as_inflight": _as_inflight,
    "mma.async_dot_wait": _async_dot_wait,
    "control.program_id": lambda m: _op("control.program_id", m.random.randrange(3)),
    "control.num_programs": lambda m: _op("control.num_programs", m.random.randrange(3)),
    "control.for": _for,
    "control.while": _while,
    "control.if": _if,
    "control.inlined": _inlined,
    "debug.device_print": lambda m: _op("debug.device_print", [m.value(F32)], 'x "quoted"\n', hex=True),
    "debug.device_assert": lambda m: _op("debug.device_assert", m.value(I1), message="no"),
}
