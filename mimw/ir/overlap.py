"""How buffers share one piece of memory: trees of groups, and where each slot of each buffer then lies. Pure maths on byte counts.

A tree's leaves are buffers (by number), its inner nodes say how their children lie in one *unit*: `shared`, all at its start, or `distinct`, one
behind the other. Slot i of a ring is in unit i; with `group_size` k, k consecutive units of the children are one unit of the group. The
semantics are those of TLX's `reuse_group`.

As text: ``shared(0, distinct(2*shared(1), 2))``; ``2*`` is a group size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import gcd

SHARED, DISTINCT = "shared", "distinct"


class Group:
    """An inner node of the tree: `kind` is "shared" or "distinct", children are buffers' numbers or groups."""

    __slots__ = ("children", "kind", "size")

    def __init__(self, children: Sequence[int | Group], kind: str = SHARED, size: int = 1) -> None:
        self.children = tuple(children)
        self.kind = kind
        self.size = size

    def __str__(self) -> str:
        many = f"{self.size}*" if self.size != 1 else ""
        return f"{many}{self.kind}({', '.join(map(str, self.children))})"

    def leaves(self) -> Iterator[int]:
        """The numbers of the buffers, from left to right."""
        for child in self.children:
            if isinstance(child, Group):
                yield from child.leaves()
            else:
                yield child


class Place:
    """Where the `slots` slots of a ring lie: slot i at `start` + `pitch` * `turn(i)` bytes."""

    __slots__ = ("digits", "pitch", "slots", "start")

    def __init__(self, start: int, pitch: int, slots: int, digits: Sequence[tuple[int, int]] = ((0, 1),)) -> None:
        self.start = start
        self.pitch = pitch
        self.slots = slots
        self.digits = tuple(
            digits
        )  # (how many values, steps of a pitch), lowest first; the last one's count is 0: no bound

    @property
    def plain(self) -> bool:
        """Whether the slots lie at equal distances, in order."""
        return self.digits == ((0, 1),)

    def turn(self, index: int) -> int:
        """Pitches from the first slot to slot `index`."""
        out = 0
        for count, step in self.digits:
            out += (index % count if count else index) * step
            index = index // count if count else 0
        return out


def parse(text: str) -> Group:
    """The tree that prints as `text`; ValueError when it is none."""
    words = re.findall(r"\d+|\w+|[*(),]", text)
    node, rest = _parse(words)
    if rest or not isinstance(node, Group):
        raise ValueError(f"{text!r} is no tree of buffers")
    return node


def _parse(words: list[str]) -> tuple[int | Group, list[str]]:
    size = 1
    if len(words) > 1 and words[1] == "*":
        size, words = int(words[0]), words[2:]
    if not words:
        raise ValueError("the tree of buffers ends early")
    kind, rest = words[0], words[1:]
    if kind.isdigit():
        return int(kind), rest
    if kind not in (SHARED, DISTINCT) or not rest or rest[0] != "(":
        raise ValueError(f"{kind!r} is no kind of group")
    children: list[int | Group] = []
    while rest and rest[0] != ")":
        child, rest = _parse(rest[1:])
        children.append(child)
    if not rest:
        raise ValueError("the tree of buffers ends early")
    return Group(children, kind, size), rest[1:]


class _Laid:
    """A subtree: `size` bytes a unit, `units` of them, and of each leaf where it starts in a unit and its digits so far (in bytes)."""

    __slots__ = ("leaves", "size", "units")

    def __init__(self, size: int, units: int, leaves: dict[int, tuple[int, list[tuple[int, int]]]]) -> None:
        self.size = size
        self.units = units
        self.leaves = leaves


def place(tree: Group, rings: Sequence[tuple[int, int]]) -> tuple[int, list[Place | None]]:
    """Where the slots of rings of (slots, bytes a slot) lie: the bytes of all of it, and a place each (None: not in the tree)."""
    laid = _lay(tree, rings)
    places: list[Place | None] = [None] * len(rings)
    for n, (start, digits) in laid.leaves.items():
        places[n] = _place(start, rings[n][0], [*digits, (0, laid.size)])
    return laid.size * laid.units, places


def _lay(node: int | Group, rings: Sequence[tuple[int, int]]) -> _Laid:
    if not isinstance(node, Group):
        slots, size = rings[node]
        return _Laid(size, slots, {node: (0, [])})
    leaves: dict[int, tuple[int, list[tuple[int, int]]]] = {}
    size = units = 0
    parts = [_lay(child, rings) for child in node.children]
    whole = sum(p.size for p in parts) if node.kind == DISTINCT else max((p.size for p in parts), default=0)
    for part in parts:
        start = size if node.kind == DISTINCT else 0
        for n, (at, digits) in part.leaves.items():
            leaves[n] = (at + start, [*digits, (node.size, whole)] if node.size > 1 else digits)
        size += part.size
        units = max(units, -(-part.units // node.size))
    return _Laid(whole * node.size, units, leaves)


def _place(start: int, slots: int, digits: list[tuple[int, int]]) -> Place:
    merged: list[tuple[int, int]] = []
    for count, step in digits:
        if merged and merged[-1][0] * merged[-1][1] == step:
            merged[-1] = (merged[-1][0] * count, merged[-1][1])
        else:
            merged.append((count, step))
    pitch = gcd(*(step for _, step in merged))
    return Place(start, pitch, slots, [(count, step // pitch if pitch else 0) for count, step in merged])
