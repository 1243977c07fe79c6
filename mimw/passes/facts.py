"""Integer facts: what is known of index arithmetic before the kernel runs.

Owns `Facts` and `compute`; a single `Fact` is in `fact.py`, the rules are in `fact_arith.py` and `fact_rules.py`. A side table over a function: nothing is
written into the IR. Vector widths, mask widths and slot bounds stand on it, so every fact must hold for every run. Knows no target.

All run lengths and divisors are powers of two, so that wrapping arithmetic keeps them. Per dimension d of a tile:

- `contiguity[d]` = c: in every block of c elements along d that starts at a multiple of c, each value is its left neighbour plus one
  (pointers: plus one element). The block at the end may be cut off by the tile's size.
- `divisor[d]`: divides the first element of each such block (pointers: the byte address).
- `constancy[d]` = k: all elements of a block of k along d are equal.

`lo` and `hi` bound the values. One assumption: index arithmetic on *non-negative* signed integers does not wrap. A kernel whose
offsets pass 2^31 is wrong anyway (the simulators report it); without this, no fact would survive `pid * BLOCK`.
"""

from __future__ import annotations

from collections.abc import Callable

from mimw.ir.core import Block, Function, OpBase, Value
from mimw.ir.layout import Layout
from mimw.ir.types import DType, PointerType, TensorType, Type, element_of, shape_of
from mimw.passes.fact import (
    Fact,
    divisor_at,
    dtype_range,
    join,
    of_constant,
    power_divisor,
    step_of,
    unknown,
)
from mimw.passes.fact_arith import ELEMENTWISE, default_fact
from mimw.passes.fact_rules import (
    arange_fact,
    broadcast_fact,
    cast_fact,
    expand_fact,
    hint_fact,
    merged_fact,
    ptr_add_fact,
    reshape_fact,
    splat_fact,
    trans_fact,
)


class Facts:
    """The side table: `of(value)`."""

    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table: dict[Value, Fact] = {}

    def of(self, value: Value) -> Fact:
        """The fact of a value; nothing but its type's range for a value that was made after the analysis."""
        found = self.table.get(value)
        return found if found is not None else unknown(value.type)

    def vector_width(self, ptr: Value, mask: Value | None) -> int:
        """Elements per access through `ptr` that addresses and mask allow in the best of all layouts (at most 16 bytes)."""
        f, size = self.of(ptr), step_of(ptr.type)
        best = 1
        for d, extent in enumerate(shape_of(ptr.type)):
            w = min(f.contiguity[d], max(1, f.divisor[d] // size), max(1, 16 // size), power_divisor(extent))
            best = max(best, w if mask is None else min(w, self.of(mask).constancy[d]))
        return best


class _Analysis:
    """One run over a function. Loops: the carried facts start as those of the first trip and are joined with what comes back until
    nothing changes; ranges that grow are given up at once, so the number of rounds is bounded by the divisors."""

    __slots__ = ("facts", "frames")

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.frames: list[_Frame] = []

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: OpBase) -> None:
        handler = _HANDLERS.get(op.name)
        table = self.facts.table
        if handler is not None:
            handler(self, op)
            return
        rule = ELEMENTWISE.get(op.name)
        if rule is not None:
            t = op.results[0].type
            inputs = [table[v] for v in op.operands]
            table[op.results[0]] = rule(inputs, t) if _integral(op) else default_fact(inputs, t)
        elif op.spec.layout == "elementwise" and len(op.results) == 1 and op.operands and op.name not in _UNKNOWN:
            table[op.results[0]] = default_fact([table[v] for v in op.operands], op.results[0].type)
        else:
            for r in op.results:
                table[r] = _opaque(r.type)

    def terminator(self, op: OpBase) -> None:
        for frame in reversed(self.frames):
            if frame.takes(op.name):
                frame.collect(op, self.facts)
                return

    def loop(self, op: OpBase, first: int) -> None:
        """for and while: block arguments from `first` on are carried."""
        table = self.facts.table
        inits = [table[v] for v in op.operands[-len(op.results) :]] if op.results else []
        carried = list(inits)
        bodies = [r.block for r in op.regions]
        rounds = 0
        while True:
            rounds += 1
            for body in bodies:
                for arg, fact in zip(body.args[first:], carried, strict=True):
                    table[arg] = fact
            frame = _Frame("loop", len(inits))
            for i, body in enumerate(bodies):
                self.frames.append(frame if i == len(bodies) - 1 else _Frame("condition", 0))
                self.block(body)
                self.frames.pop()
            merged = [
                _widen(old, join(old, new, step_of(r.type)) if new is not None and _joinable(r.type) else old, r.type)
                for old, new, r in zip(carried, frame.backs, op.results, strict=True)
            ]
            if all(a.same(b) for a, b in zip(merged, carried, strict=True)):
                break
            carried = merged
            if rounds > 80:
                carried = [_opaque(r.type) for r in op.results]
        for r, fact, left in zip(op.results, carried, frame.breaks, strict=True):
            table[r] = fact if left is None or not _joinable(r.type) else join(fact, left, step_of(r.type))


class _Frame:
    """Where terminators inside a region go to, and what they bring."""

    __slots__ = ("backs", "breaks", "kind")

    def __init__(self, kind: str, count: int) -> None:
        self.kind = kind
        self.backs: list[Fact | None] = [None] * count
        self.breaks: list[Fact | None] = [None] * count

    def takes(self, name: str) -> bool:
        if name == "control.yield":
            return True
        if name == "control.return":
            return self.kind == "inlined"
        return self.kind == "loop"

    def collect(self, op: OpBase, facts: Facts) -> None:
        into = self.breaks if op.name == "control.break" else self.backs
        if self.kind == "condition":
            return
        for i, v in enumerate(op.operands):
            old, new = into[i], facts.table[v]
            into[i] = new if old is None or not _joinable(v.type) else join(old, new, step_of(v.type))


def _joinable(t: Type) -> bool:
    return isinstance(t, (TensorType, DType, PointerType))


def _opaque(t: Type) -> Fact:
    return unknown(t) if _joinable(t) else Fact((1,), (1,), (1,))


def _widen(old: Fact, new: Fact, t: Type) -> Fact:
    least, most = dtype_range(t)
    lo = (
        new.lo
        if new.lo == old.lo
        else (0 if old.lo is not None and new.lo is not None and new.lo >= 0 and old.lo >= 0 else least)
    )
    hi = new.hi if new.hi == old.hi else most
    return Fact(new.divisor, new.contiguity, new.constancy, lo, hi, new.constant)


def _integral(op: OpBase) -> bool:
    e = element_of(op.operands[-1].type)
    return (isinstance(e, DType) and e.kind != "float") or (op.name == "arith.select" and isinstance(e, PointerType))


def _on_constant(run: _Analysis, op: OpBase) -> None:
    run.facts.table[op.results[0]] = of_constant(op.attrs["value"], op.results[0].type)


def _on_cast(run: _Analysis, op: OpBase) -> None:
    src = op.operands[0]
    run.facts.table[op.results[0]] = cast_fact(run.facts.table[src], src.type, op.results[0].type)


def _on_bitcast(run: _Analysis, op: OpBase) -> None:
    src, out = op.operands[0], op.results[0]
    f = run.facts.table[src]
    a, b = element_of(src.type), element_of(out.type)
    if isinstance(a, DType) and isinstance(b, DType) and a.kind in ("int", "uint") and b.kind in ("int", "uint"):
        lo, hi = dtype_range(out.type)
        if f.lo is not None and f.hi is not None and lo is not None and hi is not None and lo <= f.lo and f.hi <= hi:
            lo, hi = f.lo, f.hi
        run.facts.table[out] = Fact(f.divisor, f.contiguity, f.constancy, lo, hi)
        return
    if isinstance(b, PointerType):  # the address stays, the step changes
        step = step_of(src.type)
        every = tuple(divisor_at(f, d, 1, step) for d in range(len(f.divisor)))
        run.facts.table[out] = f if step_of(out.type) == step else Fact(every, (1,) * len(every), f.constancy)
        return
    run.facts.table[out] = default_fact([f], out.type)


def _on_ptr_add(run: _Analysis, op: OpBase) -> None:
    p, o = op.operands
    table = run.facts.table
    table[op.results[0]] = ptr_add_fact(table[p], table[o], p.type, o.type)


def _unary(rule: Callable[[Fact, OpBase], Fact]) -> Callable[[_Analysis, OpBase], None]:
    def handle(run: _Analysis, op: OpBase) -> None:
        run.facts.table[op.results[0]] = rule(run.facts.table[op.operands[0]], op)

    return handle


def _on_arange(run: _Analysis, op: OpBase) -> None:
    run.facts.table[op.results[0]] = arange_fact(op)


def _on_merge(run: _Analysis, op: OpBase) -> None:
    """join, cat, split."""
    for r in op.results:
        run.facts.table[r] = merged_fact([run.facts.table[v] for v in op.operands], r.type)


def _on_program(run: _Analysis, op: OpBase) -> None:
    low = 0 if op.name == "control.program_id" else 1
    run.facts.table[op.results[0]] = Fact((1,), (1,), (1,), low, (1 << 31) - 1)


def _on_for(run: _Analysis, op: OpBase) -> None:
    table = run.facts.table
    lower, upper, step = (table[v] for v in op.operands[:3])
    iv = op.regions[0].block.args[0]
    lo, hi = dtype_range(iv.type)
    if step.lo is not None and step.lo > 0:
        lo = lower.lo if lower.lo is not None else lo
        hi = upper.hi - 1 if upper.hi is not None else hi
    table[iv] = Fact((min(lower.divisor[0], step.divisor[0]),), (1,), (1,), lo, hi)
    run.loop(op, 1)


def _on_while(run: _Analysis, op: OpBase) -> None:
    run.loop(op, 0)


def _on_if(run: _Analysis, op: OpBase) -> None:
    frame = _Frame("if", len(op.results))
    run.frames.append(frame)
    for region in op.regions:
        run.block(region.block)
    run.frames.pop()
    for r, fact in zip(op.results, frame.backs, strict=True):
        run.facts.table[r] = fact if fact is not None else _opaque(r.type)


def _on_inlined(run: _Analysis, op: OpBase) -> None:
    frame = _Frame("inlined", len(op.results))
    run.frames.append(frame)
    run.block(op.regions[0].block)
    run.frames.pop()
    for r, fact in zip(op.results, frame.backs, strict=True):
        run.facts.table[r] = fact if fact is not None else _opaque(r.type)


def _on_combine(run: _Analysis, op: OpBase) -> None:
    """reduce, scan: the combine region works on scalars of which nothing is known."""
    for region in op.regions:
        for arg in region.block.args:
            run.facts.table[arg] = unknown(arg.type)
        run.frames.append(_Frame("condition", 0))
        run.block(region.block)
        run.frames.pop()
    for r in op.results:
        run.facts.table[r] = unknown(r.type)


def _on_partition(run: _Analysis, op: OpBase) -> None:
    for region in op.regions:
        run.frames.append(_Frame("condition", 0))
        run.block(region.block)
        run.frames.pop()


def _on_cluster(run: _Analysis, op: OpBase) -> None:
    low, high = (0, 15) if op.name == "cluster.cta_rank" else (1, 16)
    run.facts.table[op.results[0]] = Fact((1,), (1,), (1,), low, high)


def _on_terminator(run: _Analysis, op: OpBase) -> None:
    run.terminator(op)


_HANDLERS: dict[str, Callable[[_Analysis, OpBase], None]] = {
    "arith.constant": _on_constant,
    "arith.cast": _on_cast,
    "arith.bitcast": _on_bitcast,
    "arith.hint": _unary(hint_fact),
    "memory.ptr_add": _on_ptr_add,
    "tensor.arange": _on_arange,
    "tensor.splat": _unary(splat_fact),
    "tensor.expand_dims": _unary(expand_fact),
    "tensor.broadcast": _unary(broadcast_fact),
    "tensor.trans": _unary(trans_fact),
    "tensor.reshape": _unary(reshape_fact),
    "tensor.convert_layout": _unary(lambda f, op: f),
    "tensor.join": _on_merge,
    "tensor.cat": _on_merge,
    "tensor.split": _on_merge,
    "tensor.reduce": _on_combine,
    "tensor.scan": _on_combine,
    "control.program_id": _on_program,
    "control.num_programs": _on_program,
    "control.for": _on_for,
    "control.while": _on_while,
    "control.if": _on_if,
    "control.inlined": _on_inlined,
    "task.partition": _on_partition,
    "cluster.cta_rank": _on_cluster,
    "cluster.size": _on_cluster,
    "control.yield": _on_terminator,
    "control.break": _on_terminator,
    "control.continue": _on_terminator,
    "control.return": _on_terminator,
}


_UNKNOWN = {"inline.asm", "inline.asm_volatile"}
"""Elementwise ops whose results differ also where their operands do not: elements that lie together may be treated differently."""


def compute(function: Function) -> Facts:
    """The facts of all values of a function."""
    facts = Facts()
    for argument, value in zip(function.arguments, function.block.args, strict=True):
        fact = _opaque(value.type)
        divisor = max(power_divisor(argument.divisor), fact.divisor[0])
        lo, hi = (0, argument.below - 1) if argument.below else (fact.lo, fact.hi)
        facts.table[value] = Fact((divisor,), (1,), (1,), lo, hi)
    _Analysis(facts).block(function.block)
    return facts


def vector_width(
    facts: Facts, ptr: Value, mask: Value | None, layout: Layout | None, elem_bits: int, max_bytes: int = 16
) -> int:
    """Elements per access (a power of two, at most `max_bytes`) of a load or store through `ptr` when the tile lies in `layout`.

    Each access then takes consecutive registers 0..w-1, w..2w-1, ...: consecutive addresses, aligned, under one mask, no hole inside.
    """
    if layout is None or not layout.rank:
        return 1
    f = facts.of(ptr)
    m = facts.of(mask) if mask is not None else None
    size = elem_bits // 8
    best = 1
    for d, extent in enumerate(shape_of(ptr.type)):
        w = min(layout.contiguity(d), f.contiguity[d], max(1, f.divisor[d] // size), max_bytes // size)
        if m is not None:
            w = min(w, m.constancy[d])
        if extent != layout.shape_padded[d]:
            w = min(w, power_divisor(extent))
        best = max(best, w)
    return best
