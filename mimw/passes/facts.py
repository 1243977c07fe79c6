"""Integer facts: what is known of index arithmetic before the kernel runs.

Owns `Fact`, `Facts` and `compute`. A side table over a function: nothing is written into the IR. Vector widths, mask widths and
slot bounds stand on it, so every fact must hold for every run. Knows no layout and no target.

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
from mimw.ir.types import I1, DType, PointerType, TensorType, Type, element_of, shape_of

Dims = tuple[int, ...]
MOST = 1 << 62  # the divisor of zero
_MOST_I32 = (1 << 31) - 1
_MOST_I64 = (1 << 63) - 1


class Fact:
    """What is known of one value. A scalar has one dimension of size 1. `constant` is the number when it is the same everywhere and known."""

    __slots__ = ("constancy", "constant", "contiguity", "divisor", "hi", "lo")

    def __init__(
        self,
        divisor: Dims,
        contiguity: Dims,
        constancy: Dims,
        lo: int | None = None,
        hi: int | None = None,
        constant: int | float | bool | None = None,
    ) -> None:
        self.divisor = divisor
        self.contiguity = contiguity
        self.constancy = constancy
        self.lo = lo
        self.hi = hi
        self.constant = constant

    def same(self, other: Fact) -> bool:
        """Whether both say the same."""
        return (
            self.divisor == other.divisor
            and self.contiguity == other.contiguity
            and self.constancy == other.constancy
            and self.lo == other.lo
            and self.hi == other.hi
            and self.constant == other.constant
        )

    def __repr__(self) -> str:
        value = f", = {self.constant}" if self.constant is not None else f", in [{self.lo}, {self.hi}]"
        return f"Fact(divisor {self.divisor}, contiguity {self.contiguity}, constancy {self.constancy}{value})"


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
        f, size = self.of(ptr), _step(ptr.type)
        best = 1
        for d, extent in enumerate(shape_of(ptr.type)):
            w = min(f.contiguity[d], max(1, f.divisor[d] // size), max(1, 16 // size), power_divisor(extent))
            best = max(best, w if mask is None else min(w, self.of(mask).constancy[d]))
        return best


# ------------------------------------------------------------------------------------------------------------ small arithmetic


def power_divisor(n: int) -> int:
    """The largest power of two that divides n (MOST for zero)."""
    return min(n & -n, MOST) if n else MOST


def power_above(n: int) -> int:
    """The smallest power of two not below n."""
    return 1 << (n - 1).bit_length() if n > 1 else 1


def dtype_range(t: Type) -> tuple[int | None, int | None]:
    """The smallest and largest value of an integer type; (None, None) for others."""
    e = element_of(t) if isinstance(t, (TensorType, DType, PointerType)) else None
    if not isinstance(e, DType) or e.kind == "float":
        return None, None
    if e.kind == "bool":
        return 0, 1
    if e.kind == "uint":
        return 0, (1 << e.bits) - 1
    return -(1 << (e.bits - 1)), (1 << (e.bits - 1)) - 1


def unknown(t: Type) -> Fact:
    """Nothing but what the type says."""
    rank = max(1, len(shape_of(t)))
    ones = (1,) * rank
    lo, hi = dtype_range(t)
    divisor = ones
    if isinstance(t, (TensorType, PointerType)) and isinstance(e := element_of(t), PointerType):
        divisor = (e.pointee.itemsize,) * rank
    return Fact(divisor, ones, ones, lo, hi)


def of_constant(value: int | float | bool, t: Type) -> Fact:
    """A known number everywhere."""
    shape = shape_of(t) or (1,)
    constancy = tuple(power_above(s) for s in shape)
    ones = (1,) * len(shape)
    if isinstance(value, float):
        return Fact(ones, ones, constancy, None, None, value)
    n = int(value)
    return Fact((power_divisor(n),) * len(shape), ones, constancy, n, n, value)


def _step(t: Type) -> int:
    """What one step of contiguity adds: 1, or the bytes of a pointee."""
    e = element_of(t)
    return e.pointee.itemsize if isinstance(e, PointerType) else 1


def _at(f: Fact, d: int, block: int, step: int = 1) -> int:
    """A divisor of the elements at multiples of `block` along d."""
    return f.divisor[d] if block >= f.contiguity[d] else min(f.divisor[d], block * step)


def _every(f: Fact, step: int = 1) -> int:
    """A divisor of every element."""
    return max(_at(f, d, 1, step) for d in range(len(f.divisor)))


def join(f: Fact, g: Fact, step: int = 1) -> Fact:
    """What holds of both: for values that come from two places."""
    contiguity = tuple(map(min, f.contiguity, g.contiguity))
    divisor = tuple(min(_at(f, d, c, step), _at(g, d, c, step)) for d, c in enumerate(contiguity))
    lo = None if f.lo is None or g.lo is None else min(f.lo, g.lo)
    hi = None if f.hi is None or g.hi is None else max(f.hi, g.hi)
    constant = (
        f.constant
        if f.constant is not None and f.constant == g.constant and type(f.constant) is type(g.constant)
        else None
    )
    return Fact(divisor, contiguity, tuple(map(min, f.constancy, g.constancy)), lo, hi, constant)


def _ranged(lo: int | None, hi: int | None, t: Type) -> tuple[int | None, int | None]:
    """A computed range within a type: unknown when it may have wrapped, unless both ends began as non-negative (see the module)."""
    least, most = dtype_range(t)
    if least is None or most is None:
        return None, None
    if lo is None or hi is None or lo < least:
        return least, most
    if hi > most:
        return (lo, most) if 0 <= lo <= most and most in (_MOST_I32, _MOST_I64) else (least, most)
    return lo, hi


# ------------------------------------------------------------------------------------------------------------ elementwise rules

Rule = Callable[[list[Fact], Type], Fact]


def _constancy(facts: list[Fact]) -> Dims:
    return tuple(map(min, *(f.constancy for f in facts))) if len(facts) > 1 else facts[0].constancy


def _default(facts: list[Fact], t: Type) -> Fact:
    lo, hi = dtype_range(t)
    ones = (1,) * len(facts[0].divisor)
    return Fact(ones, ones, _constancy(facts), lo, hi)


def _add(facts: list[Fact], t: Type) -> Fact:
    a, b = facts
    contiguity = tuple(
        max(min(ca, kb), min(cb, ka))
        for ca, cb, ka, kb in zip(a.contiguity, b.contiguity, a.constancy, b.constancy, strict=True)
    )
    divisor = tuple(min(_at(a, d, c), _at(b, d, c)) for d, c in enumerate(contiguity))
    lo = None if a.lo is None or b.lo is None else a.lo + b.lo
    hi = None if a.hi is None or b.hi is None else a.hi + b.hi
    return Fact(divisor, contiguity, _constancy(facts), *_ranged(lo, hi, t))


def _sub(facts: list[Fact], t: Type) -> Fact:
    a, b = facts
    contiguity = tuple(map(min, a.contiguity, b.constancy))
    divisor = tuple(min(_at(a, d, c), _at(b, d, c)) for d, c in enumerate(contiguity))
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
    divisor = tuple(min(_at(a, d, 1) * _at(b, d, 1), MOST) for d in range(rank))
    lo = hi = None
    if a.lo is not None and a.hi is not None and b.lo is not None and b.hi is not None:
        ends = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
        lo, hi = min(ends), max(ends)
    return Fact(divisor, (1,) * rank, _constancy(facts), *_ranged(lo, hi, t))


def _div(facts: list[Fact], t: Type) -> Fact:
    a, b = facts
    out = _default(facts, t)
    if a.lo is None or a.hi is None or b.lo is None or b.hi is None:
        return out
    if b.constant == 1:
        return Fact(a.divisor, a.contiguity, a.constancy, a.lo, a.hi)
    if a.lo < 0:
        return out
    # Runs of k consecutive numbers that start at a multiple of k, divided by a multiple of k (of either sign), are equal.
    k = tuple(
        min(ca, da, _at(b, d, 1), kb)
        for d, (ca, da, kb) in enumerate(zip(a.contiguity, a.divisor, b.constancy, strict=True))
    )
    constancy = tuple(map(max, out.constancy, k))
    divisor = out.divisor
    if isinstance(b.constant, int) and b.constant > 0 and b.constant & (b.constant - 1) == 0:
        divisor = tuple(max(1, _at(a, d, 1) // b.constant) for d in range(len(constancy)))
    lo, hi = (a.lo // b.hi, a.hi // b.lo) if b.lo > 0 else (out.lo, out.hi)
    return Fact(divisor, out.contiguity, constancy, lo, hi)


def _rem(facts: list[Fact], t: Type) -> Fact:
    a, b = facts
    out = _default(facts, t)
    if a.lo is None or b.lo is None or b.hi is None or a.lo < 0:
        # Whatever the signs, the remainder keeps common divisors.
        divisor = tuple(min(_at(a, d, 1), _at(b, d, 1)) for d in range(len(a.divisor)))
        return Fact(divisor, out.contiguity, out.constancy, out.lo, out.hi)
    # x >= 0: the remainder by n of either sign is x mod |n|.
    contiguity = tuple(
        max(1, min(ca, da, _at(b, d, 1), kb))
        for d, (ca, da, kb) in enumerate(zip(a.contiguity, a.divisor, b.constancy, strict=True))
    )
    divisor = tuple(min(_at(a, d, c), _at(b, d, 1)) for d, c in enumerate(contiguity))
    hi = a.hi if b.lo <= 0 <= b.hi or a.hi is None else min(a.hi, max(abs(b.lo), abs(b.hi)) - 1)
    return Fact(divisor, contiguity, out.constancy, 0, hi)


def _and(facts: list[Fact], t: Type) -> Fact:
    a, b = facts
    if isinstance(a.constant, int):
        a, b = b, a
    out = _default(facts, t)
    rank = len(a.divisor)
    divisor = tuple(max(_at(a, d, 1), _at(b, d, 1)) for d in range(rank))
    contiguity, constancy = out.contiguity, out.constancy
    mask = b.constant
    if isinstance(mask, int) and not isinstance(mask, bool) and mask:
        low = power_divisor(mask)
        constancy = tuple(max(k, min(c, v, low)) for k, c, v in zip(constancy, a.contiguity, a.divisor, strict=True))
        if low == 1:
            keep = power_divisor(mask + 1)  # the mask's run of low ones
            contiguity = tuple(min(c, v, keep) for c, v in zip(a.contiguity, a.divisor, strict=True))
            divisor = tuple(_at(a, d, c) for d, c in enumerate(contiguity))
    lo, hi = out.lo, out.hi
    bounds = [f.hi for f in (a, b) if f.lo is not None and f.lo >= 0 and f.hi is not None]
    if bounds:
        lo, hi = 0, min(bounds)
    return Fact(divisor, contiguity, constancy, lo, hi)


def _bits(facts: list[Fact], t: Type) -> Fact:
    """or, xor: common trailing zeros stay."""
    out = _default(facts, t)
    a, b = facts
    divisor = tuple(min(_at(a, d, 1), _at(b, d, 1)) for d in range(len(a.divisor)))
    return Fact(divisor, out.contiguity, out.constancy, out.lo, out.hi)


def _shl(facts: list[Fact], t: Type) -> Fact:
    count = facts[1].constant
    bits = _element_bits(t)
    if not isinstance(count, int) or not 0 <= count < bits:
        return _default(facts, t)
    out = _mul([facts[0], of_constant(1 << count, t)], t)
    least, most = dtype_range(t)
    a = facts[0]
    if a.lo is None or a.hi is None or most is None or a.lo < 0 or a.hi << count > most:  # bits, not an index
        return Fact(out.divisor, out.contiguity, out.constancy, least, most)
    return out


def _shr(facts: list[Fact], t: Type) -> Fact:
    a, count = facts[0], facts[1].constant
    out = _default(facts, t)
    if not isinstance(count, int) or not 0 <= count < _element_bits(t):
        return out
    k = tuple(min(c, v, 1 << count) for c, v in zip(a.contiguity, a.divisor, strict=True))
    lo = None if a.lo is None else a.lo >> count
    hi = None if a.hi is None else a.hi >> count
    divisor = tuple(max(1, _at(a, d, 1) >> count) for d in range(len(k)))
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
    out = _default(facts, t)
    divisor = tuple(_at(a, d, 1) for d in range(len(a.divisor)))
    return Fact(divisor, out.contiguity, out.constancy, out.lo, out.hi)


def _select(facts: list[Fact], t: Type) -> Fact:
    cond, a, b = facts
    if cond.constant is not None:
        return a if cond.constant else b
    step = _step(t)
    contiguity = tuple(map(min, a.contiguity, b.contiguity, cond.constancy))
    divisor = tuple(min(_at(a, d, c, step), _at(b, d, c, step)) for d, c in enumerate(contiguity))
    both = join(a, b, step)
    return Fact(divisor, contiguity, _constancy(facts), both.lo, both.hi)


def _below(a: Fact, b: Fact) -> Dims:
    """Constancy of a < b (and a >= b): runs of consecutive numbers from a multiple of k on one side of a multiple of k."""
    return tuple(
        min(ca, da, _at(b, d, 1), kb)
        for d, (ca, da, kb) in enumerate(zip(a.contiguity, a.divisor, b.constancy, strict=True))
    )


def _compare_lt(facts: list[Fact], t: Type) -> Fact:
    out = _default(facts, t)
    return Fact(out.divisor, out.contiguity, tuple(map(max, out.constancy, _below(*facts))), 0, 1)


def _compare_gt(facts: list[Fact], t: Type) -> Fact:
    out = _default(facts, t)
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


def _cast(f: Fact, source: Type, target: Type) -> Fact:
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
        step = _step(source)
        return tuple(_at(f, d, 1, step) for d in range(rank))
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
    divisor = tuple(_at(f, d, c) for d, c in enumerate(contiguity))
    return Fact(divisor, contiguity, f.constancy, f.lo, f.hi, f.constant)


def _ptr_add(ptr: Fact, offset: Fact, ptr_type: Type, offset_type: Type) -> Fact:
    size = _step(ptr_type)
    o = _unwrapped(offset, offset_type)
    contiguity = tuple(
        max(min(cp, ko), min(co, kp))
        for cp, co, kp, ko in zip(ptr.contiguity, o.contiguity, ptr.constancy, o.constancy, strict=True)
    )
    divisor = tuple(min(_at(ptr, d, c, size), _at(o, d, c) * size, MOST) for d, c in enumerate(contiguity))
    divisor = tuple(power_divisor(v) for v in divisor)
    return Fact(divisor, contiguity, tuple(map(min, ptr.constancy, o.constancy)))


# ------------------------------------------------------------------------------------------------------------ the other ops


def _hint(f: Fact, op: OpBase) -> Fact:
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


def _arange(op: OpBase) -> Fact:
    start, end = op.attrs["start"], op.attrs["end"]
    n = power_above(end - start)
    return Fact((power_divisor(start),), (n,), (1,), start, end - 1)


def _splat(f: Fact, op: OpBase) -> Fact:
    shape = op.attrs["shape"]
    rank = len(shape)
    return Fact(f.divisor * rank, (1,) * rank, tuple(power_above(s) for s in shape), f.lo, f.hi, f.constant)


def _expand(f: Fact, op: OpBase) -> Fact:
    k = op.attrs["axis"]
    every = _every(f, _step(op.results[0].type))

    def put(dims: Dims, x: int) -> Dims:
        return (*dims[:k], x, *dims[k:])

    return Fact(put(f.divisor, every), put(f.contiguity, 1), put(f.constancy, 1), f.lo, f.hi, f.constant)


def _broadcast(f: Fact, op: OpBase) -> Fact:
    old, new = shape_of(op.operands[0].type), op.attrs["shape"]
    constancy = tuple(power_above(n) if o != n else k for o, n, k in zip(old, new, f.constancy, strict=True))
    return Fact(f.divisor, f.contiguity, constancy, f.lo, f.hi, f.constant)


def _trans(f: Fact, op: OpBase) -> Fact:
    order: Dims = op.attrs["order"]

    def pick(dims: Dims) -> Dims:
        return tuple(dims[i] for i in order)

    return Fact(pick(f.divisor), pick(f.contiguity), pick(f.constancy), f.lo, f.hi, f.constant)


def _reshape(f: Fact, op: OpBase) -> Fact:
    """Dimensions of size 1 come and go freely; otherwise only what holds of every element stays."""
    source, result = op.operands[0].type, op.results[0].type
    old, new = shape_of(source), shape_of(result)
    every = _every(f, _step(source))
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


def _merged(facts: list[Fact], t: Type) -> Fact:
    """Elements that come from several tiles: what holds of every element of each."""
    step = _step(t)
    rank = max(1, len(shape_of(t)))
    every = min(_every(f, step) for f in facts)
    lo = None if any(f.lo is None for f in facts) else min(f.lo for f in facts if f.lo is not None)
    hi = None if any(f.hi is None for f in facts) else max(f.hi for f in facts if f.hi is not None)
    first = facts[0].constant
    constant = first if all(f.constant == first for f in facts) else None
    return Fact((every,) * rank, (1,) * rank, (1,) * rank, lo, hi, constant)


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
            table[op.results[0]] = rule(inputs, t) if _integral(op) else _default(inputs, t)
        elif op.spec.layout == "elementwise" and op.results and op.operands:
            table[op.results[0]] = _default([table[v] for v in op.operands], op.results[0].type)
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
                _widen(old, join(old, new, _step(r.type)) if new is not None and _joinable(r.type) else old, r.type)
                for old, new, r in zip(carried, frame.backs, op.results, strict=True)
            ]
            if all(a.same(b) for a, b in zip(merged, carried, strict=True)):
                break
            carried = merged
            if rounds > 80:
                carried = [_opaque(r.type) for r in op.results]
        for r, fact, left in zip(op.results, carried, frame.breaks, strict=True):
            table[r] = fact if left is None or not _joinable(r.type) else join(fact, left, _step(r.type))


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
            into[i] = new if old is None or not _joinable(v.type) else join(old, new, _step(v.type))


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
    return isinstance(e, DType) and e.kind != "float" or (op.name == "arith.select" and isinstance(e, PointerType))


def _on_constant(run: _Analysis, op: OpBase) -> None:
    run.facts.table[op.results[0]] = of_constant(op.attrs["value"], op.results[0].type)


def _on_cast(run: _Analysis, op: OpBase) -> None:
    src = op.operands[0]
    run.facts.table[op.results[0]] = _cast(run.facts.table[src], src.type, op.results[0].type)


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
        step = _step(src.type)
        every = tuple(_at(f, d, 1, step) for d in range(len(f.divisor)))
        run.facts.table[out] = f if _step(out.type) == step else Fact(every, (1,) * len(every), f.constancy)
        return
    run.facts.table[out] = _default([f], out.type)


def _on_ptr_add(run: _Analysis, op: OpBase) -> None:
    p, o = op.operands
    table = run.facts.table
    table[op.results[0]] = _ptr_add(table[p], table[o], p.type, o.type)


def _unary(rule: Callable[[Fact, OpBase], Fact]) -> Callable[[_Analysis, OpBase], None]:
    def handle(run: _Analysis, op: OpBase) -> None:
        run.facts.table[op.results[0]] = rule(run.facts.table[op.operands[0]], op)

    return handle


def _on_arange(run: _Analysis, op: OpBase) -> None:
    run.facts.table[op.results[0]] = _arange(op)


def _on_merge(run: _Analysis, op: OpBase) -> None:
    """join, cat, split."""
    for r in op.results:
        run.facts.table[r] = _merged([run.facts.table[v] for v in op.operands], r.type)


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


def _on_terminator(run: _Analysis, op: OpBase) -> None:
    run.terminator(op)


_HANDLERS: dict[str, Callable[[_Analysis, OpBase], None]] = {
    "arith.constant": _on_constant,
    "arith.cast": _on_cast,
    "arith.bitcast": _on_bitcast,
    "arith.hint": _unary(_hint),
    "memory.ptr_add": _on_ptr_add,
    "tensor.arange": _on_arange,
    "tensor.splat": _unary(_splat),
    "tensor.expand_dims": _unary(_expand),
    "tensor.broadcast": _unary(_broadcast),
    "tensor.trans": _unary(_trans),
    "tensor.reshape": _unary(_reshape),
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
    "control.yield": _on_terminator,
    "control.break": _on_terminator,
    "control.continue": _on_terminator,
    "control.return": _on_terminator,
}


def compute(function: Function) -> Facts:
    """The facts of all values of a function."""
    facts = Facts()
    for argument, value in zip(function.arguments, function.block.args, strict=True):
        fact = _opaque(value.type)
        divisor = max(power_divisor(argument.divisor), fact.divisor[0])
        facts.table[value] = Fact((divisor,), (1,), (1,), fact.lo, fact.hi)
    _Analysis(facts).block(function.block)
    return facts


# ------------------------------------------------------------------------------------------------------------ what stands on it


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


def is_true(facts: Facts, mask: Value) -> bool:
    """Whether a mask is known to be true everywhere."""
    return mask.type is I1 and facts.of(mask).constant is True
