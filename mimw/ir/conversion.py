"""How a tile gets from one layout to another: the cheapest legal plan, as data.

Pure mathematics over `Layout`: the cost model of layout inference prices a plan, a lowering executes it, `inspect`
prints its reason. Knows no op and no instruction. Three kinds, from cheap to dear:

- ``"rename"``: every thread already holds what it needs; registers change names.
- ``"shuffle"``: every warp already holds what it needs; lanes exchange registers (`conversion_shuffle`).
- ``"shared"``: through scratch in shared memory (`conversion_shared`); always possible.

Only elements inside the logical shape count: a hole of the destination may receive anything, a hole of the source
is never read as an element. A destination register that is all holes is given some valid source register, so that
lowerings need no special case.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from mimw.ir.conversion_problem import Problem, Transfer
from mimw.ir.conversion_shared import SharedPlan, bank_conflicts, plan_shared
from mimw.ir.conversion_shuffle import ShufflePlan, plan_shuffle
from mimw.ir.layout import Layout
from mimw.ir.reduction import ReducePlan, ScanPlan, reduce_plan, scan_plan

__all__ = [
    "Plan",
    "ReducePlan",
    "ScanPlan",
    "SharedPlan",
    "ShufflePlan",
    "bank_conflicts",
    "plan_conversion",
    "reduce_plan",
    "scan_plan",
]

UNLIMITED = 1 << 30


class Plan:
    """One way from `src` to `dst`. Exactly one of `rename`, `shuffle`, `shared` is set, as `kind` says.

    `rename[i]` is the source register of destination register i. `cost` is in cycles of one warp scheduler per warp
    (an estimate; the constants and what they stand for are in `conversion_shuffle` and `conversion_shared`).
    `reason` is one sentence.
    """

    __slots__ = ("cost", "dst", "kind", "reason", "rename", "shared", "shuffle", "src")

    def __init__(
        self,
        src: Layout,
        dst: Layout,
        cost: int,
        reason: str,
        rename: tuple[int, ...] | None = None,
        shuffle: ShufflePlan | None = None,
        shared: SharedPlan | None = None,
    ) -> None:
        self.src = src
        self.dst = dst
        self.cost = cost
        self.reason = reason
        self.rename = rename
        self.shuffle = shuffle
        self.shared = shared
        self.kind = "rename" if rename is not None else "shuffle" if shuffle is not None else "shared"

    def __repr__(self) -> str:
        return f"<{self.kind} plan, {self.cost} cycles: {self.reason}>"

    @property
    def scratch_bytes(self) -> int:
        """Shared memory that the plan needs while it runs."""
        return self.shared.scratch_bytes if self.shared is not None else 0


def plan_conversion(
    src: Layout, dst: Layout, shape: Sequence[int], elem_bits: int, scratch_budget: int = UNLIMITED
) -> Plan:
    """The cheapest legal plan from `src` to `dst` for a tile of logical `shape` with elements of `elem_bits` bits.

    `scratch_budget` is in bytes; a shared plan that needs more goes in rounds. ValueError when the layouts are not
    of the same tile, threads and CTAs, or when not even one vector fits the budget. Cached.
    """
    return _plan(src, dst, tuple(shape), elem_bits, scratch_budget)


@functools.lru_cache(maxsize=4096)
def _plan(src: Layout, dst: Layout, shape: tuple[int, ...], elem_bits: int, scratch_budget: int) -> Plan:
    if src is dst:
        return Plan(src, dst, 0, "the layouts are the same", rename=tuple(range(src.num_regs)))
    problem = Problem(src, dst, shape)
    transfer = problem.transfer()
    if transfer.keeps_threads():
        return Plan(src, dst, 0, "every thread already holds what it needs", rename=_rename(problem, transfer))
    local = transfer.keeps_warps()
    try:
        shared = plan_shared(problem, transfer, elem_bits, scratch_budget)
    except ValueError:
        shuffle = plan_shuffle(problem, transfer, elem_bits) if local else None
        if shuffle is None:
            raise
        reason = f"elements move inside a warp and no scratch fits: {shuffle.describe()}"
        return Plan(src, dst, shuffle.cost, reason, shuffle=shuffle)
    if not local:
        return Plan(src, dst, shared.cost, f"elements move between warps: {shared.describe()}", shared=shared)
    shuffle = plan_shuffle(problem, transfer, elem_bits, limit=shared.cost)
    if shuffle is not None and shuffle.cost <= shared.cost:
        reason = f"elements move inside a warp: {shuffle.describe()} (shared memory: {shared.cost} cycles)"
        return Plan(src, dst, shuffle.cost, reason, shuffle=shuffle)
    dearer = f"{shuffle.describe()} at {shuffle.cost} cycles" if shuffle is not None else "shuffles and selects by far"
    return Plan(src, dst, shared.cost, f"cheaper than {dearer}: {shared.describe()}", shared=shared)


def _rename(problem: Problem, transfer: Transfer) -> tuple[int, ...]:
    sources = transfer.register_table()
    real = problem.src_registers
    return tuple(max(0, real[sources[ext]]) for ext in problem.dst_extended)
