"""Linear algebra over F2 on Python integers: the arithmetic under the layouts.

A vector is an integer (bit i = component i), a matrix is a sequence of columns (the images of the unit vectors), so
that applying a matrix is XOR of the chosen columns. Knows nothing of layouts, registers or lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def apply(columns: Sequence[int], vector: int) -> int:
    """The image of `vector` under the matrix with these columns; bits past the last column are ignored."""
    result = 0
    for column in columns:
        if vector & 1:
            result ^= column
        vector >>= 1
        if not vector:
            break
    return result


def compose(outer: Sequence[int], inner: Sequence[int]) -> tuple[int, ...]:
    """Columns of outer∘inner."""
    return tuple(apply(outer, column) for column in inner)


def span_table(columns: Sequence[int]) -> list[int]:
    """Images of 0, 1, 2, ... 2^n - 1 in order."""
    table = [0]
    for column in columns:
        table += [value ^ column for value in table]
    return table


def parity(value: int) -> int:
    """Sum of the bits modulo 2."""
    return value.bit_count() & 1


class Span:
    """A growing subspace with, for each member, how it is made from the vectors that were added.

    `add` tells whether the vector was new. `solve` returns the combination (bit i = i-th *added or offered* vector)
    that makes the given vector, or None when it lies outside.
    """

    __slots__ = ("_rows", "offered")

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self._rows: dict[int, tuple[int, int]] = {}  # leading bit -> (vector, combination)
        self.offered = 0
        for vector in vectors:
            self.add(vector)

    @property
    def dim(self) -> int:
        return len(self._rows)

    def copy(self) -> Span:
        other = Span()
        other._rows = dict(self._rows)
        other.offered = self.offered
        return other

    def reduce(self, vector: int) -> tuple[int, int]:
        """(remainder outside the span, combination of offered vectors that was subtracted)."""
        combination = 0
        rows = self._rows
        remainder = 0
        while vector:
            top = vector.bit_length() - 1
            row = rows.get(top)
            if row is None:
                remainder |= 1 << top
                vector ^= 1 << top
            else:
                vector ^= row[0]
                combination ^= row[1]
        return remainder, combination

    def add(self, vector: int) -> bool:
        """Offer one more vector; True when it was independent of the earlier ones."""
        remainder, combination = self.reduce(vector)
        index = self.offered
        self.offered += 1
        if not remainder:
            return False
        self._rows[remainder.bit_length() - 1] = (remainder, combination ^ (1 << index))
        return True

    def __contains__(self, vector: int) -> bool:
        return self.reduce(vector)[0] == 0

    def solve(self, vector: int) -> int | None:
        """The combination of offered vectors that makes `vector` (independent ones only), or None."""
        remainder, combination = self.reduce(vector)
        return None if remainder else combination


def rank(columns: Iterable[int]) -> int:
    """Dimension of the space that the columns span."""
    return Span(columns).dim


def kernel(columns: Sequence[int]) -> list[int]:
    """A basis of the vectors that the matrix sends to zero, each with a highest bit that no other member has."""
    span = Span()
    basis: list[int] = []
    for index, column in enumerate(columns):
        remainder, combination = span.reduce(column)
        span.add(column)
        if not remainder:
            basis.append(combination ^ (1 << index))
    return basis


def right_inverse(columns: Sequence[int], bits: int) -> tuple[int, ...]:
    """For each of `bits` output unit vectors one input that makes it, using the earliest independent columns only.

    Raises ValueError when the matrix is not onto.
    """
    span = Span(columns)
    result: list[int] = []
    for bit in range(bits):
        solution = span.solve(1 << bit)
        if solution is None:
            raise ValueError(f"the map is not onto: nothing reaches bit {bit}")
        result.append(solution)
    return tuple(result)


def intersection(left: Sequence[int], right: Sequence[int]) -> list[int]:
    """A basis of the intersection of two spans."""
    left = independent(left)
    right = independent(right)
    result: list[int] = []
    for vector in kernel([*left, *right]):
        result.append(apply(left, vector & ((1 << len(left)) - 1)))
    return result


def independent(vectors: Iterable[int], beyond: Iterable[int] = ()) -> list[int]:
    """The vectors that are independent of the earlier ones and of `beyond`, in order."""
    span = Span(beyond)
    return [vector for vector in vectors if span.add(vector)]
