"""The rules that serve one op each: what is known of its result from what is known of its operands. Pure functions of `Fact` values.

Elementwise arithmetic has its rules in `fact_arith.py`. What a fact means stands in `facts.py`.
"""

from __future__ import annotations

from mimw.ir.core import OpBase
from mimw.ir.types import DType, PointerType, Type, element_of, shape_of
from mimw.passes.fact import (
    MOST,
    Dims,
    Fact,
    divisor_at,
    divisor_of_all,
    dtype_range,
    power_above,
    power_divisor,
    step_of,
)


def cast_fact(f: Fact, source: Type, target: Type) -> Fact:
    """Integer casts keep what survives: widening needs that no block wraps inside."""
    a, b = element_of(source), element_of(target)
    rank = len(f.divisor)
    ones = (1,) * rank
    least, most = dtype_range(target)
    if not isinstance(a, DType) or not isinstance(b, DType):
        return Fact(_bytes_of(f, source, target), ones, f.constancy, least, most)
    integers = a.kind in ("int", "uint") and b.kind in ("int", "uint")
    if not integers:
        if a.kind == "bool" and b.kind in ("int", "uint"):
            return Fact(ones, ones, f.constancy, 0, 1, None if f.constant is None else int(f.constant))
        return Fact(ones, ones, f.constancy, least, most)
    fits = (
        f.lo is not None
        and f.hi is not None
        and least is not None
        and most is not None
        and least <= f.lo
        and f.hi <= most
    )
    if b.bits > a.bits:
        f = _unwrapped(f, source)
    lo, hi = (f.lo, f.hi) if fits else (least, most)
    constant = f.constant if fits else None
    return Fact(f.divisor, f.contiguity, f.constancy, lo, hi, constant)


def _bytes_of(f: Fact, source: Type, target: Type) -> Dims:
    """Pointer to integer or back: the address is the same number."""
    rank = len(f.divisor)
    if isinstance(element_of(source), PointerType) != isinstance(element_of(target), PointerType):
        step = step_of(source)
        return tuple(divisor_at(f, d, 1, step) for d in range(rank))
    return f.divisor


def _unwrapped(f: Fact, t: Type) -> Fact:
    """The fact of a value once it is widened: a block that may cross 2^(bits-1) is cut to blocks that cannot."""
    least, most = dtype_range(t)
    if (
        f.lo is not None
        and f.hi is not None
        and least is not None
        and most is not None
        and (f.lo > least or f.hi < most)
    ):
        return f  # its range was followed from known ends: it did not wrap
    contiguity = tuple(map(min, f.contiguity, f.divisor))
    divisor = tuple(divisor_at(f, d, c) for d, c in enumerate(contiguity))
    return Fact(divisor, contiguity, f.constancy, f.lo, f.hi, f.constant)


def ptr_add_fact(ptr: Fact, offset: Fact, ptr_type: Type, offset_type: Type) -> Fact:
    size = step_of(ptr_type)
    o = _unwrapped(offset, offset_type)
    contiguity = tuple(
        max(min(cp, ko), min(co, kp))
        for cp, co, kp, ko in zip(ptr.contiguity, o.contiguity, ptr.constancy, o.constancy, strict=True)
    )
    divisor = tuple(
        min(divisor_at(ptr, d, c, size), divisor_at(o, d, c) * size, MOST) for d, c in enumerate(contiguity)
    )
    divisor = tuple(power_divisor(v) for v in divisor)
    return Fact(divisor, contiguity, tuple(map(min, ptr.constancy, o.constancy)))


def hint_fact(f: Fact, op: OpBase) -> Fact:
    def better(have: Dims, said: Dims) -> Dims:
        if not said:
            return have
        said = said if len(said) == len(have) else said[:1] * len(have)
        return tuple(max(h, power_divisor(s) if s > 0 else 1) for h, s in zip(have, said, strict=True))

    shape = shape_of(op.results[0].type) or (1,)
    tops = tuple(power_above(s) for s in shape)
    contiguity = tuple(map(min, better(f.contiguity, op.attrs["contiguity"]), tops))
    constancy = tuple(map(min, better(f.constancy, op.attrs["constancy"]), tops))
    return Fact(better(f.divisor, op.attrs["divisor"]), contiguity, constancy, f.lo, f.hi, f.constant)


def arange_fact(op: OpBase) -> Fact:
    start, end = op.attrs["start"], op.attrs["end"]
    n = power_above(end - start)
    return Fact((power_divisor(start),), (n,), (1,), start, end - 1)


def splat_fact(f: Fact, op: OpBase) -> Fact:
    shape = op.attrs["shape"]
    rank = len(shape)
    return Fact(f.divisor * rank, (1,) * rank, tuple(power_above(s) for s in shape), f.lo, f.hi, f.constant)


def expand_fact(f: Fact, op: OpBase) -> Fact:
    k = op.attrs["axis"]
    every = divisor_of_all(f, step_of(op.results[0].type))

    def put(dims: Dims, x: int) -> Dims:
        return (*dims[:k], x, *dims[k:])

    return Fact(put(f.divisor, every), put(f.contiguity, 1), put(f.constancy, 1), f.lo, f.hi, f.constant)


def broadcast_fact(f: Fact, op: OpBase) -> Fact:
    old, new = shape_of(op.operands[0].type), op.attrs["shape"]
    constancy = tuple(power_above(n) if o != n else k for o, n, k in zip(old, new, f.constancy, strict=True))
    return Fact(f.divisor, f.contiguity, constancy, f.lo, f.hi, f.constant)


def trans_fact(f: Fact, op: OpBase) -> Fact:
    order: Dims = op.attrs["order"]

    def pick(dims: Dims) -> Dims:
        return tuple(dims[i] for i in order)

    return Fact(pick(f.divisor), pick(f.contiguity), pick(f.constancy), f.lo, f.hi, f.constant)


def reshape_fact(f: Fact, op: OpBase) -> Fact:
    """Dimensions of size 1 come and go freely; otherwise only what holds of every element stays."""
    source, result = op.operands[0].type, op.results[0].type
    old, new = shape_of(source), shape_of(result)
    every = divisor_of_all(f, step_of(source))
    if op.attrs["can_reorder"] or [s for s in old if s != 1] != [s for s in new if s != 1]:
        full = f.constant is not None or all(k >= s for k, s in zip(f.constancy, old, strict=True))
        constancy = tuple(power_above(s) if full else 1 for s in new)
        return Fact((every,) * len(new), (1,) * len(new), constancy, f.lo, f.hi, f.constant)
    kept = iter([i for i, s in enumerate(old) if s != 1])
    source_dim = [next(kept) if s != 1 else -1 for s in new]
    return Fact(
        tuple(every if i < 0 else f.divisor[i] for i in source_dim),
        tuple(1 if i < 0 else f.contiguity[i] for i in source_dim),
        tuple(1 if i < 0 else f.constancy[i] for i in source_dim),
        f.lo,
        f.hi,
        f.constant,
    )


def merged_fact(facts: list[Fact], t: Type) -> Fact:
    """Elements that come from several tiles: what holds of every element of each."""
    step = step_of(t)
    rank = max(1, len(shape_of(t)))
    every = min(divisor_of_all(f, step) for f in facts)
    lo = None if any(f.lo is None for f in facts) else min(f.lo for f in facts if f.lo is not None)
    hi = None if any(f.hi is None for f in facts) else max(f.hi for f in facts if f.hi is not None)
    first = facts[0].constant
    constant = first if all(f.constant == first for f in facts) else None
    return Fact((every,) * rank, (1,) * rank, (1,) * rank, lo, hi, constant)
