"""Copies that happen at once, put into an order in which they may happen one after the other.

Knows nothing of what is copied: places are any hashable things. A place that is only read may stand for a constant.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def schedule(moves: Iterable[tuple[K, K]]) -> tuple[list[tuple[K, K]], list[list[K]]]:
    """(target, source) pairs in order, then what is left: cycles ``[a, b, c]``, meaning a <- b, b <- c, c <- a.

    Each target occurs once. A move of a place to itself is dropped. No cycle's member is read by another move any more.
    """
    source = {dst: src for dst, src in moves if dst != src}
    readers: dict[K, int] = {}
    for src in source.values():
        readers[src] = readers.get(src, 0) + 1
    ready = [dst for dst in source if not readers.get(dst)]
    ordered: list[tuple[K, K]] = []
    for dst in ready:  # grows while we go
        src = source.pop(dst)
        ordered.append((dst, src))
        readers[src] -= 1
        if not readers[src] and src in source:
            ready.append(src)
    cycles: list[list[K]] = []
    while source:
        first = next(iter(source))
        cycle = [first]
        at = source.pop(first)
        while at != first:
            cycle.append(at)
            at = source.pop(at)
        cycles.append(cycle)
    return ordered, cycles
