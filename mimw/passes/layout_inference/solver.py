"""Chooses a candidate for every variable so that the total cost is small. Knows no ops and no layouts.

Min-sum message passing in program order, forth and back (exact where the graph is a tree, which most kernels are nearly), decoding in
program order, then improvement: single choices, and floods, which carry one side's choice across an edge that costs something and
on through everything that can follow for free (equal optima on a cycle leave such seams). Deterministic.
"""

from __future__ import annotations

from mimw.passes.layout_inference.constraints import Edge, Problem, Variable

_SWEEPS = 3
_FLOOD_ROUNDS = 4

Table = list[list[float]]


class _Link:
    """An edge with its cost table and the two messages that run along it."""

    __slots__ = ("down", "edge", "table", "up")

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        n, m = len(edge.source.candidates), len(edge.target.candidates)
        self.table: Table = [[edge.cost(i, j) for j in range(m)] for i in range(n)]
        self.down = [0.0] * m  # to the target
        self.up = [0.0] * n  # to the source


def solve(problem: Problem) -> float:
    """Set `choice` of every variable; the total cost."""
    links: dict[Variable, list[_Link]] = {v: [] for v in problem.variables}
    for edge in problem.edges:
        if edge.source is edge.target:
            continue
        link = _Link(edge)
        links[edge.source].append(link)
        links[edge.target].append(link)
    open_variables = [v for v in problem.variables if len(v.candidates) > 1]
    for v in problem.variables:
        v.choice = 0
    for _ in range(_SWEEPS):
        for v in problem.variables:
            _send(v, links[v], down=True)
        for v in reversed(problem.variables):
            _send(v, links[v], down=False)
    _decode(open_variables, links)
    _improve(open_variables, links)
    for _ in range(_FLOOD_ROUNDS):
        if not _flood_seams(problem, links):
            break
        _improve(open_variables, links)
    return problem.total()


def _belief(v: Variable, links: list[_Link]) -> list[float]:
    total = list(v.costs)
    for link in links:
        message = link.up if link.edge.source is v else link.down
        for i, x in enumerate(message):
            total[i] += x
    return total


def _send(v: Variable, links: list[_Link], down: bool) -> None:
    """Messages from v to its targets (`down`) or its sources."""
    belief: list[float] | None = None
    for link in links:
        if (link.edge.source is v) is not down:
            continue
        if belief is None:
            belief = _belief(v, links)
        incoming = link.up if down else link.down
        rest = [b - x for b, x in zip(belief, incoming, strict=True)]
        if down:
            out = [min(r + row[j] for r, row in zip(rest, link.table, strict=True)) for j in range(len(link.down))]
            low = min(out)
            link.down = [x - low for x in out]
        else:
            out = [min(map(float.__add__, rest, row)) for row in link.table]
            low = min(out)
            link.up = [x - low for x in out]


def _decode(order: list[Variable], links: dict[Variable, list[_Link]]) -> None:
    """Take choices in program order: earlier neighbours are decided, later ones speak through their messages."""
    decided = {v for v in links if len(v.candidates) == 1}
    for v in order:
        total = list(v.costs)
        for link in links[v]:
            source = link.edge.source is v
            other = link.edge.target if source else link.edge.source
            for i in range(len(total)):
                if other in decided:
                    total[i] += link.table[i][other.choice] if source else link.table[other.choice][i]
                else:
                    total[i] += link.up[i] if source else link.down[i]
        v.choice = _least(total)
        decided.add(v)


def _improve(order: list[Variable], links: dict[Variable, list[_Link]]) -> None:
    """Change single choices while that helps."""
    for _ in range(8):
        changed = False
        for v in order:
            total = list(v.costs)
            for link in links[v]:
                if link.edge.source is v:
                    j = link.edge.target.choice
                    for i, row in enumerate(link.table):
                        total[i] += row[j]
                else:
                    for i, x in enumerate(link.table[link.edge.source.choice]):
                        total[i] += x
            best = _least(total)
            if total[best] < total[v.choice] - 1e-9:
                v.choice = best
                changed = True
        if not changed:
            return


def _flood_seams(problem: Problem, links: dict[Variable, list[_Link]]) -> bool:
    """Try to move the choice of either end of every edge that costs something over to the other end; whether one helped."""
    helped = False
    for edge in problem.edges:
        if edge.source is edge.target or edge.cost(edge.source.choice, edge.target.choice) == 0.0:
            continue
        for start, end in ((edge.source, edge.target), (edge.target, edge.source)):
            if edge.cost(edge.source.choice, edge.target.choice) == 0.0:
                break
            changes = _flood(start, end, links)
            if changes and _gain(changes, links) > 1e-9:
                for v, choice in changes.items():
                    v.choice = choice
                helped = True
    return helped


def _flood(start: Variable, end: Variable, links: dict[Variable, list[_Link]]) -> dict[Variable, int]:
    """The choices that change when `end` follows `start`, and their neighbours follow them, each for free."""
    changes: dict[Variable, int] = {}
    todo = [(start, end)]
    while todo:
        settled, v = todo.pop()
        if v in changes or v is start:
            continue
        own = changes.get(settled, settled.choice)
        choice = _follower(settled, own, v, links)
        if choice is None or choice == v.choice:
            continue
        changes[v] = choice
        for link in links[v]:
            other = link.edge.target if link.edge.source is v else link.edge.source
            todo.append((v, other))
    return changes


def _follower(settled: Variable, own: int, v: Variable, links: dict[Variable, list[_Link]]) -> int | None:
    """The choice of v that makes its edge to a settled neighbour free."""
    for link in links[v]:
        if link.edge.source is settled and link.edge.target is v:
            row = link.table[own]
        elif link.edge.target is settled and link.edge.source is v:
            row = [r[own] for r in link.table]
        else:
            continue
        best = _least(row)
        return best if row[best] == 0.0 else None
    return None


def _gain(changes: dict[Variable, int], links: dict[Variable, list[_Link]]) -> float:
    """How much cheaper the whole becomes."""
    gain = 0.0
    seen: set[int] = set()
    for v, choice in changes.items():
        gain += v.costs[v.choice] - v.costs[choice]
        for link in links[v]:
            if id(link) in seen:
                continue
            seen.add(id(link))
            a, b = link.edge.source, link.edge.target
            gain += link.table[a.choice][b.choice] - link.table[changes.get(a, a.choice)][changes.get(b, b.choice)]
    return gain


def _least(values: list[float]) -> int:
    return min(range(len(values)), key=values.__getitem__)
