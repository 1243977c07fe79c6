"""Conversions inside warps: one lane exchange per register where the matrix allows it, with lane-dependent selects
around.

The transfer matrix says from which register ρ and lane λ a destination register r' of lane l' comes:

    ρ = A r' + B l' + C w        λ = D r' + E l' + F w

A lane can send one register at a time, so the exchange is turned into rounds k: in round k lane l' fetches its register
r' = k + G l'. G is chosen so that lanes which read the same lane in the same round want the same register; that
register is then a function of the *sending* lane, ρ = const(k) + H λ. So: **pre** stages swap registers by lane
(x[r] <- x[r + Hλ]), one shuffle a round follows, **post** stages put results in their place (z[r'] <- y[r' + G
l']). Where G would need more register bits than there are, a round shuffles several registers and selects among
them (`select_masks`).

Everything moves in *units* of 2^t neighbouring registers, as many as fit 32 bits and stay together.
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.ir import f2
from mimw.ir.conversion_problem import Problem, Transfer

# Cycles of one warp scheduler per warp instruction, from the throughput tables of the CUDA programming guide for
# sm_80 to sm_100: 32 lanes a cycle and SM for shuffles (a scheduler gets one in 4), 64 for selects (one in 2).
SHUFFLE_CYCLES = 4
SELECT_CYCLES = 2
SHUFFLE_LATENCY = 24  # paid once: the shuffles of one conversion overlap


class Stage:
    """new[i] = old[b] where the thread's parity is 1, else old[a], for table[i] = (a, b); -1: not needed or no element.

    The parity is that of (lane & lane_mask) plus that of (warp & warp_mask). Where a == b no select is needed.
    """

    __slots__ = ("lane_mask", "table", "warp_mask")

    def __init__(self, lane_mask: int, warp_mask: int, table: tuple[tuple[int, int], ...]) -> None:
        self.lane_mask = lane_mask
        self.warp_mask = warp_mask
        self.table = table

    def selects(self) -> int:
        return sum(1 for a, b in self.table if a != b)


class Round:
    """One exchange: the unit picks[p], where bit j of p is the parity of the *receiving* thread under
    select_masks[j], of lane `lane_xor` + (XOR of lane_columns over the lane's bits) + (XOR of warp_columns over the
    warp's bits)."""

    __slots__ = ("lane_xor", "picks")

    def __init__(self, lane_xor: int, picks: tuple[int, ...]) -> None:
        self.lane_xor = lane_xor
        self.picks = picks


class ShufflePlan:
    """Execute: gather source registers into units; apply `pre` in order; make the rounds; apply `post` to their
    results; the unit `result[i]` of those is destination unit i.

    Units: source unit i holds registers ``source[i] .. source[i] + unit - 1`` (source[i] = -1: no such registers),
    destination unit i holds destination registers ``i * unit ..``. `rounds[k]` is None where nothing is needed of
    it. When `lane_identity` and a round's `lane_xor` is 0, the round stays in its lane and needs no shuffle; with a
    nonzero `lane_xor` it is a butterfly.
    """

    __slots__ = (
        "cost",
        "lane_columns",
        "lane_identity",
        "post",
        "pre",
        "result",
        "rounds",
        "select_masks",
        "source",
        "unit",
        "warp_columns",
    )

    def __init__(
        self,
        unit: int,
        source: tuple[int, ...],
        pre: tuple[Stage, ...],
        rounds: tuple[Round | None, ...],
        select_masks: tuple[tuple[int, int], ...],
        lane_columns: tuple[int, ...],
        warp_columns: tuple[int, ...],
        post: tuple[Stage, ...],
        result: tuple[int, ...],
        words: int,
    ) -> None:
        self.unit = unit
        self.source = source
        self.pre = pre
        self.rounds = rounds
        self.select_masks = select_masks
        self.lane_columns = lane_columns
        self.warp_columns = warp_columns
        self.lane_identity = all(c == 1 << i for i, c in enumerate(lane_columns)) and not any(warp_columns)
        self.post = post
        self.result = result
        self.cost = words * (self.shuffles() * SHUFFLE_CYCLES + self.selects() * SELECT_CYCLES)
        self.cost += SHUFFLE_LATENCY if self.shuffles() else 0

    def needs_shuffle(self, one: Round) -> bool:
        """False when the round's value is already in its lane."""
        return one.lane_xor != 0 or not self.lane_identity

    def shuffles(self) -> int:
        """Warp shuffles, in units."""
        return sum(len(set(r.picks) - {-1}) for r in self.rounds if r is not None and self.needs_shuffle(r))

    def selects(self) -> int:
        """Lane-dependent selects, in units."""
        picked = sum(max(0, len(set(r.picks) - {-1}) - 1) for r in self.rounds if r is not None)
        return picked + sum(stage.selects() for stage in (*self.pre, *self.post))

    def describe(self) -> str:
        return f"{self.shuffles()} shuffles and {self.selects()} selects"


def plan_shuffle(problem: Problem, transfer: Transfer, elem_bits: int, limit: int | None = None) -> ShufflePlan | None:
    """The plan for a transfer that keeps warps; None when it would cost far more than `limit` cycles."""
    t = _unit_bits(problem, transfer, elem_bits)
    m, lanes = problem.dst_reg_bits, problem.lanes
    parts = [transfer.parts(index) for index in range(m + lanes + problem.warps)]
    reg_a, reg_d = [p[0] >> t for p in parts[t:m]], [p[1] for p in parts[t:m]]
    lane_b, lane_e = [p[0] >> t for p in parts[m : m + lanes]], [p[1] for p in parts[m : m + lanes]]
    warp_c, warp_f = [p[0] >> t for p in parts[m + lanes :]], [p[1] for p in parts[m + lanes :]]

    wanting = _conflicts(lane_e, lane_b)
    post_terms: list[tuple[int, int, int]] = []  # (lane mask, warp mask, register XOR): G
    select_masks: list[tuple[int, int]] = []
    pick_units: list[int] = []
    left: list[tuple[int, int]] = []  # (functional, kernel vector) served by picks
    reached = f2.Span(lane_e)
    spare = [bit for bit, column in enumerate(reg_d) if reached.add(column)]
    for functional, vector in wanting:
        if spare:
            post_terms.append((functional, 0, 1 << spare.pop(0)))
        else:
            left.append((functional, vector))
            select_masks.append((functional, 0))
            pick_units.append(f2.apply(lane_b, vector))

    lane_g = [_evaluate(post_terms, 1 << bit) for bit in range(lanes)]
    lane_q = [f2.apply(reg_d, g) ^ e for g, e in zip(lane_g, lane_e, strict=True)]
    lane_h = _sending_side(lane_q, lane_b, lane_g, reg_a, left)
    warp_pre = [c ^ f2.apply(lane_h, f) for c, f in zip(warp_c, warp_f, strict=True)]

    live_bits = _used_register_bits(problem, transfer, t)
    pre_terms = _terms(lane_h, warp_pre)
    words = max(1, (elem_bits << t) // 32)
    rounds: list[Round | None] = []
    if limit is not None:
        selects = (1 << live_bits.bit_count()) * ((1 << len(left)) - 1 + len(post_terms))
        selects += len(pre_terms) << problem.src_reg_bits - t
        # Half of it may be pseudo registers that do not exist.
        if words * selects * SELECT_CYCLES > 2 * limit:
            return None
    for k in range(1 << m - t):
        if k & ~live_bits:
            rounds.append(None)
            continue
        lane_xor = f2.apply(reg_d, k)
        base = f2.apply(reg_a, k) ^ f2.apply(lane_h, lane_xor)
        rounds.append(Round(lane_xor, tuple(base ^ more for more in f2.span_table(pick_units))))
    result = tuple(ext >> t & live_bits for ext in problem.dst_extended[:: 1 << t])
    source = tuple(problem.src_registers[:: 1 << t])
    return _prune(1 << t, source, pre_terms, rounds, select_masks, lane_q, warp_f, post_terms, result, words)


def _unit_bits(problem: Problem, transfer: Transfer, elem_bits: int) -> int:
    """log2 of the neighbouring registers that travel together, within 32 bits."""
    t = 0
    limit = min(len(problem.src.reg), len(problem.dst.reg))
    while t < limit and elem_bits << t + 1 <= 32 and transfer.columns[t] == 1 << t:
        if any(column >> t & 1 for index, column in enumerate(transfer.columns) if index != t):
            break
        t += 1
    return t


def _conflicts(lane_e: Sequence[int], lane_b: Sequence[int]) -> list[tuple[int, int]]:
    """Lanes that read one lane but want different registers: [(functional, vector)], a basis of ker E modulo ker E
    ∩ ker B.

    Each functional (a lane mask, by parity) is 1 on its own vector and 0 on the others and on ker E ∩ ker B.
    """
    span = f2.Span()
    chosen: list[tuple[int, int]] = []
    for vector in f2.kernel(lane_e):
        pivot = 1 << vector.bit_length() - 1  # no other vector of the kernel basis has this bit
        wanted = f2.apply(lane_b, vector)
        solution = span.solve(wanted)
        if solution is None:
            span.add(wanted)
            chosen.append((pivot, vector))
            continue
        # vector + (chosen ones in `solution`) lies in ker B: their functionals must vanish on it.
        chosen = [(f ^ pivot if solution >> i & 1 else f, v) for i, (f, v) in enumerate(chosen)]
    return chosen


def _evaluate(terms: Sequence[tuple[int, int, int]], lane: int) -> int:
    result = 0
    for mask, _, value in terms:
        if f2.parity(mask & lane):
            result ^= value
    return result


def _sending_side(
    lane_q: Sequence[int],
    lane_b: Sequence[int],
    lane_g: Sequence[int],
    reg_a: Sequence[int],
    left: Sequence[tuple[int, int]],
) -> list[int]:
    """H by lane bit: the register offset as a function of the sending lane."""
    span = f2.Span()
    values: list[int] = []
    for bit in range(len(lane_q)):
        lane = 1 << bit
        for functional, vector in left:
            if f2.parity(functional & 1 << bit):
                lane ^= vector
        values.append(f2.apply(reg_a, f2.apply(lane_g, lane)) ^ f2.apply(lane_b, lane))
        span.add(lane_q[bit])
    for bit in range(len(lane_q)):
        span.add(1 << bit)
        values.append(0)
    result: list[int] = []
    for bit in range(len(lane_q)):
        combination = span.solve(1 << bit) or 0
        result.append(f2.apply(values, combination))
    return result


def _terms(lane_columns: Sequence[int], warp_columns: Sequence[int]) -> list[tuple[int, int, int]]:
    """A matrix from threads to register offsets as a sum of (lane mask, warp mask, offset), as few as its rank."""
    columns = [*lane_columns, *warp_columns]
    span = f2.Span()
    offsets: list[int] = []
    masks: list[int] = []
    for index, column in enumerate(columns):
        if column not in span:
            # `offered` counts independent offsets only, so combinations index `offsets`.
            span.add(column)
            offsets.append(column)
            masks.append(1 << index)
            continue
        combination = span.solve(column) or 0
        for i in range(len(offsets)):
            if combination >> i & 1:
                masks[i] |= 1 << index
    low = (1 << len(lane_columns)) - 1
    return [(mask & low, mask >> len(lane_columns), offset) for mask, offset in zip(masks, offsets, strict=True)]


def _used_register_bits(problem: Problem, transfer: Transfer, t: int) -> int:
    """Destination unit bits that change the source: the others are copies of the same round."""
    return sum(1 << index - t for index in range(t, problem.dst_reg_bits) if transfer.columns[index])


def _prune(
    unit: int,
    source: tuple[int, ...],
    pre_terms: Sequence[tuple[int, int, int]],
    rounds: list[Round | None],
    select_masks: Sequence[tuple[int, int]],
    lane_columns: Sequence[int],
    warp_columns: Sequence[int],
    post_terms: Sequence[tuple[int, int, int]],
    result: tuple[int, ...],
    words: int,
) -> ShufflePlan:
    """Work out which values exist (sources forward) and which are wanted (results backward), and keep only those."""
    exists = [reg >= 0 for reg in source]
    pre: list[list[tuple[int, int]]] = []
    for _, _, offset in pre_terms:
        table = [_choose(i, i ^ offset, exists) for i in range(len(source))]
        exists = [a >= 0 for a, _ in table]
        pre.append(table)
    for k, one in enumerate(rounds):
        if one is None:
            continue
        real = next((p for p in one.picks if exists[p]), None)
        if real is None:
            rounds[k] = None
        else:
            rounds[k] = Round(one.lane_xor, tuple(p if exists[p] else real for p in one.picks))
    exists = [one is not None for one in rounds]
    post: list[list[tuple[int, int]]] = []
    for _, _, offset in post_terms:
        table = [_choose(i, i ^ offset, exists) for i in range(len(rounds))]
        exists = [a >= 0 for a, _ in table]
        post.append(table)
    fallback = exists.index(True)  # a destination unit of nothing but holes takes any value
    result = tuple(i if exists[i] else fallback for i in result)

    wanted = set(result)
    post_stages = _backward(post, post_terms, wanted)
    rounds = [one if k in wanted else None for k, one in enumerate(rounds)]
    wanted = {p for one in rounds if one is not None for p in one.picks}
    pre_stages = _backward(pre, pre_terms, wanted)
    return ShufflePlan(
        unit,
        source,
        pre_stages,
        tuple(rounds),
        tuple(select_masks),
        tuple(lane_columns),
        tuple(warp_columns),
        post_stages,
        result,
        words,
    )


def _choose(a: int, b: int, exists: Sequence[bool]) -> tuple[int, int]:
    first, second = exists[a], exists[b]
    if first and second:
        return a, b
    if first:
        return a, a
    return (b, b) if second else (-1, -1)


def _backward(
    tables: Sequence[list[tuple[int, int]]], terms: Sequence[tuple[int, int, int]], wanted: set[int]
) -> tuple[Stage, ...]:
    """Drop what no later stage reads; `wanted` becomes the values wanted before the first stage."""
    stages: list[Stage] = []
    for table, (lane_mask, warp_mask, _) in zip(reversed(tables), reversed(terms), strict=True):
        kept = tuple(pair if i in wanted else (-1, -1) for i, pair in enumerate(table))
        stages.append(Stage(lane_mask, warp_mask, kept))
        fresh = {x for pair in kept for x in pair if x >= 0}
        wanted.clear()
        wanted |= fresh
    return tuple(reversed(stages))
