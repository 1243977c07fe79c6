"""What one fact is, and the arithmetic on divisors and ranges that all rules share. `facts.py` says what a fact means."""

from __future__ import annotations

from mimw.ir.types import DType, PointerType, TensorType, Type, element_of, shape_of

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


def step_of(t: Type) -> int:
    """What one step of contiguity adds: 1, or the bytes of a pointee."""
    e = element_of(t)
    return e.pointee.itemsize if isinstance(e, PointerType) else 1


def divisor_at(f: Fact, d: int, block: int, step: int = 1) -> int:
    """A divisor of the elements at multiples of `block` along d."""
    return f.divisor[d] if block >= f.contiguity[d] else min(f.divisor[d], block * step)


def divisor_of_all(f: Fact, step: int = 1) -> int:
    """A divisor of every element."""
    return max(divisor_at(f, d, 1, step) for d in range(len(f.divisor)))


def join(f: Fact, g: Fact, step: int = 1) -> Fact:
    """What holds of both: for values that come from two places."""
    contiguity = tuple(map(min, f.contiguity, g.contiguity))
    divisor = tuple(min(divisor_at(f, d, c, step), divisor_at(g, d, c, step)) for d, c in enumerate(contiguity))
    lo = None if f.lo is None or g.lo is None else min(f.lo, g.lo)
    hi = None if f.hi is None or g.hi is None else max(f.hi, g.hi)
    constant = (
        f.constant
        if f.constant is not None and f.constant == g.constant and type(f.constant) is type(g.constant)
        else None
    )
    return Fact(divisor, contiguity, tuple(map(min, f.constancy, g.constancy)), lo, hi, constant)


def clamp_range(lo: int | None, hi: int | None, t: Type) -> tuple[int | None, int | None]:
    """A computed range within a type: unknown when it may have wrapped, unless both ends began as non-negative (see the module)."""
    least, most = dtype_range(t)
    if least is None or most is None:
        return None, None
    if lo is None or hi is None or lo < least:
        return least, most
    if hi > most:
        return (lo, most) if 0 <= lo <= most and most in (_MOST_I32, _MOST_I64) else (least, most)
    return lo, hi
