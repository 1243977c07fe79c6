"""The rules of elementwise arithmetic: what is known of a result from what is known of its operands. Pure functions of `Fact` values.

`ELEMENTWISE` has them by op name. What a fact means stands in `facts.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from mimw.ir.types import DType, Type, element_of
from mimw.passes.fact import (
    MOST,
    Dims,
    Fact,
    clamp_range,
    divisor_at,
    dtype_range,
    join,
    of_constant,
    power_divisor,
    step_of,
)

Rule = Callable[[list[Fact], Type], Fact]


def _constancy(facts: list[Fact]) -> Dims:
    return tuple(map(min, *(f.constancy for f in facts))) if len(facts) > 1 else facts[0].constancy


def default_fact(facts: list[Fact], t: Type) -> Fact:
    """What holds of every elementwise op: the result is as constant as its operands, and within its type."""
    lo, hi = dtype_range(t)
    ones = (1,) * len(facts[0].divisor)
    return Fact(ones, ones, _constancy(facts), lo, hi)


def _add(facts: list[Fact], t: Type) -> Fact:
    a, b = facts
    contiguity = tuple(
        max(min(ca, kb), min(cb, ka))
        for ca, cb, ka, kb in zip(a.contiguity, b.contiguity, a.constancy, b.constancy, strict=True)
    )
    divisor = tuple(min(divisor_at(a, d, c), divisor_at(b, d, c)) for d, c in enumerate(contiguity))
    lo = None if a.lo is None or b.lo is None else a.lo + b.lo
    hi = None if a.hi is None or b.hi is None else a.hi + b.hi
    return Fact(divisor, contiguity, _constancy(facts), *clamp_range(lo, hi, t))


def _sub(facts: list[Fact], t: Type) -> Fact:
    a, b = facts
    contiguity = tuple(map(min, a.contiguity, b.constancy))
    divisor = tuple(min(divisor_at(a, d, c), divisor_at(b, d, c)) for d, c in enumerate(contiguity))
    least, most = dtype_range(t)
    lo = None if a.lo is None or b.hi is None else a.lo - b.hi
    hi = None if a.hi is None or b.lo is None else a.hi - b.lo
    if lo is None or hi is None or least is None or most is None or lo < least or hi > most:
        lo, hi = least, most
    return Fact(divisor, contiguity, _constancy(facts), lo, hi)


def _mul(facts: list[Fact], t: Type) -> Fact:
    a, b = facts
    for x, y in ((a, b), (b, a)):
        if y.constant == 1 and y.constant is not True:
            return Fact(x.divisor, x.contiguity, x.constancy, x.lo, x.hi)
    rank = len(a.divisor)
    # A divisor of *every* element along d on both sides: contiguity is lost.
    divisor = tuple(min(divisor_at(a, d, 1) * divisor_at(b, d, 1), MOST) for d in range(rank))
    lo = hi = None
    if a.lo is not None and a.hi is not None and b.lo is not None and b.hi is not None:
        ends = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
        lo, hi = min(ends), max(ends)
    return Fact(divisor, (1,) * rank, _constancy(facts), *clamp_range(lo, hi, t))


def _div(facts: list[Fact], t: Type) -> Fact:
    a, b = facts
    out = default_fact(facts, t)
    if a.lo is None or a.hi is None or b.lo is None or b.hi is None:
        return out
    if b.constant == 1:
        return Fact(a.divisor, a.contiguity, a.constancy, a.lo, a.hi)
    if a.lo < 0:
        return out
    # Runs of k consecutive numbers that start at a multiple of k, divided by a multiple of k (of either sign), are equal.
    k = tuple(
        min(ca, da, divisor_at(b, d, 1), kb)
        for d, (ca, da, kb) in enumerate(zip(a.contiguity, a.divisor, b.constancy, strict=True))
    )
    constancy = tuple(map(max, out.constancy, k))
    divisor = out.divisor
    if isinstance(b.constant, int) and b.constant > 0 and b.constant & (b.constant - 1) == 0:
        divisor = tuple(max(1, divisor_at(a, d, 1) // b.constant) for d in range(len(constancy)))
    # Nothing is known of a quotient by zero, so that a divisor from 0 on is one from 1 on.
    lo, hi = (a.lo // max(b.hi, 1), a.hi // max(b.lo, 1)) if b.lo >= 0 else (out.lo, out.hi)
    return Fact(divisor, out.contiguity, constancy, lo, hi)


def _rem(facts: list[Fact], t: Type) -> Fact:
    a, b = facts
    out = default_fact(facts, t)
    if a.lo is None or b.lo is None or b.hi is None or a.lo < 0:
        # Whatever the signs, the remainder keeps common divisors.
        divisor = tuple(min(divisor_at(a, d, 1), divisor_at(b, d, 1)) for d in range(len(a.divisor)))
        return Fact(divisor, out.contiguity, out.constancy, out.lo, out.hi)
    # x >= 0: the remainder by n of either sign is x mod |n|.
    contiguity = tuple(
        max(1, min(ca, da, divisor_at(b, d, 1), kb))
        for d, (ca, da, kb) in enumerate(zip(a.contiguity, a.divisor, b.constancy, strict=True))
    )
    divisor = tuple(min(divisor_at(a, d, c), divisor_at(b, d, 1)) for d, c in enumerate(contiguity))
    hi = a.hi if a.hi is None else min(a.hi, max(abs(b.lo), abs(b.hi), 1) - 1)  # by zero: as for quotients
    return Fact(divisor, contiguity, out.constancy, 0, hi)


def _and(facts: list[Fact], t: Type) -> Fact:
    a, b = facts
    if isinstance(a.constant, int):
        a, b = b, a
    out = default_fact(facts, t)
    rank = len(a.divisor)
    divisor = tuple(max(divisor_at(a, d, 1), divisor_at(b, d, 1)) for d in range(rank))
    contiguity, constancy = out.contiguity, out.constancy
    mask = b.constant
    if isinstance(mask, int) and not isinstance(mask, bool) and mask:
        low = power_divisor(mask)
        constancy = tuple(max(k, min(c, v, low)) for k, c, v in zip(constancy, a.contiguity, a.divisor, strict=True))
        if low == 1:
            keep = power_divisor(mask + 1)  # the mask's run of low ones
            contiguity = tuple(min(c, v, keep) for c, v in zip(a.contiguity, a.divisor, strict=True))
            divisor = tuple(divisor_at(a, d, c) for d, c in enumerate(contiguity))
    lo, hi = out.lo, out.hi
    bounds = [f.hi for f in (a, b) if f.lo is not None and f.lo >= 0 and f.hi is not None]
    if bounds:
        lo, hi = 0, min(bounds)
    return Fact(divisor, contiguity, constancy, lo, hi)


def _bits(facts: list[Fact], t: Type) -> Fact:
    """or, xor: common trailing zeros stay."""
    out = default_fact(facts, t)
    a, b = facts
    divisor = tuple(min(divisor_at(a, d, 1), divisor_at(b, d, 1)) for d in range(len(a.divisor)))
    return Fact(divisor, out.contiguity, out.constancy, out.lo, out.hi)


def _shl(facts: list[Fact], t: Type) -> Fact:
    count = facts[1].constant
    bits = _element_bits(t)
    if not isinstance(count, int) or not 0 <= count < bits:
        return default_fact(facts, t)
    out = _mul([facts[0], of_constant(1 << count, t)], t)
    least, most = dtype_range(t)
    a = facts[0]
    if a.lo is None or a.hi is None or most is None or a.lo < 0 or a.hi << count > most:  # bits, not an index
        return Fact(out.divisor, out.contiguity, out.constancy, least, most)
    return out


def _shr(facts: list[Fact], t: Type) -> Fact:
    a, count = facts[0], facts[1].constant
    out = default_fact(facts, t)
    if not isinstance(count, int) or not 0 <= count < _element_bits(t):
        return out
    k = tuple(min(c, v, 1 << count) for c, v in zip(a.contiguity, a.divisor, strict=True))
    lo = None if a.lo is None else a.lo >> count
    hi = None if a.hi is None else a.hi >> count
    divisor = tuple(max(1, divisor_at(a, d, 1) >> count) for d in range(len(k)))
    return Fact(divisor, out.contiguity, tuple(map(max, out.constancy, k)), lo, hi)


def _element_bits(t: Type) -> int:
    e = element_of(t)
    return e.bits if isinstance(e, DType) else 64


def _smaller(facts: list[Fact], t: Type) -> Fact:
    return _extreme(facts, t, min)


def _larger(facts: list[Fact], t: Type) -> Fact:
    return _extreme(facts, t, max)


def _extreme(facts: list[Fact], t: Type, pick: Callable[[int, int], int]) -> Fact:
    a, b = facts
    out = _bits(facts, t)
    lo = out.lo if a.lo is None or b.lo is None else pick(a.lo, b.lo)
    hi = out.hi if a.hi is None or b.hi is None else pick(a.hi, b.hi)
    return Fact(out.divisor, out.contiguity, out.constancy, lo, hi)


def _negate(facts: list[Fact], t: Type) -> Fact:
    a = facts[0]
    out = default_fact(facts, t)
    divisor = tuple(divisor_at(a, d, 1) for d in range(len(a.divisor)))
    return Fact(divisor, out.contiguity, out.constancy, out.lo, out.hi)


def _select(facts: list[Fact], t: Type) -> Fact:
    cond, a, b = facts
    if cond.constant is not None:
        return a if cond.constant else b
    step = step_of(t)
    contiguity = tuple(map(min, a.contiguity, b.contiguity, cond.constancy))
    divisor = tuple(min(divisor_at(a, d, c, step), divisor_at(b, d, c, step)) for d, c in enumerate(contiguity))
    both = join(a, b, step)
    return Fact(divisor, contiguity, _constancy(facts), both.lo, both.hi)


def _below(a: Fact, b: Fact) -> Dims:
    """Constancy of a < b (and a >= b): runs of consecutive numbers from a multiple of k on one side of a multiple of k."""
    return tuple(
        min(ca, da, divisor_at(b, d, 1), kb)
        for d, (ca, da, kb) in enumerate(zip(a.contiguity, a.divisor, b.constancy, strict=True))
    )


def _compare_lt(facts: list[Fact], t: Type) -> Fact:
    out = default_fact(facts, t)
    return Fact(out.divisor, out.contiguity, tuple(map(max, out.constancy, _below(*facts))), 0, 1)


def _compare_gt(facts: list[Fact], t: Type) -> Fact:
    out = default_fact(facts, t)
    return Fact(out.divisor, out.contiguity, tuple(map(max, out.constancy, _below(facts[1], facts[0]))), 0, 1)


ELEMENTWISE: dict[str, Rule] = {
    "arith.add": _add,
    "arith.sub": _sub,
    "arith.mul": _mul,
    "arith.div": _div,
    "arith.rem": _rem,
    "arith.and": _and,
    "arith.or": _bits,
    "arith.xor": _bits,
    "arith.shl": _shl,
    "arith.shr": _shr,
    "arith.minnum": _smaller,
    "arith.maxnum": _larger,
    "arith.neg": _negate,
    "arith.select": _select,
    "arith.lt": _compare_lt,
    "arith.ge": _compare_lt,
    "arith.gt": _compare_gt,
    "arith.le": _compare_gt,
}
