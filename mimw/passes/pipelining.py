"""Software pipelining of plain loops around a product: operands are copied to shared memory some trips ahead.

Before: each trip loads a tile, puts it into a buffer, multiplies. After: the buffer is a ring of `num_stages` slots; trip i starts the copy
(cp.async) for trip i + distance, waits for its own, and multiplies. What the addresses depend on is computed ahead too: the ops of that slice,
and the carried values in it, run `distance` trips early, guarded by the trip's existence.

With wgmma one product stays in flight over the back edge, so that the tensor core works while the next copies are started; a slot is then free one
trip later and the distance is num_stages - 2, else num_stages - 1.

Where copies go through registers (CDNA) there are two slots, and the loads of the next trip stand in front of the product, its stores behind; one
slot, and a barrier more, where two would take more than half of shared memory, or where tiles are cast on their way (8-bit floats that are
multiplied as f16): the casts stand behind the product too. The last trip, which has no next one, stands behind the loop: so loads in the loop need
no guard, which would cost zeros in their registers each trip.

Blocks that TMA brings (`blocks_by_tma`) come through rings with a barrier a slot (`pipelining_tma`).

Order in a trip: wait for the own copy; (barrier, by sync_insertion); start the copy ahead; multiply. A loop that cannot be pipelined gets a remark that
says why; `inspect` shows it.
"""

from __future__ import annotations

from mimw.ir.core import Module
from mimw.ir.ops.async_copy import TmaLoadOp
from mimw.ir.ops.control import ForOp
from mimw.ir.ops.mma import AsyncDotOp, DotOp
from mimw.passes.facts import Facts, compute
from mimw.passes.pipelining_plan import Plan
from mimw.passes.pipelining_tma import TmaPlan
from mimw.passes.tasks import partition_of
from mimw.target import Target

NAME = "pipelining"


def run(module: Module, target: Target) -> None:
    """Pipeline every innermost loop that feeds a product from memory."""
    if not (target.has("cp_async") or target.has("mfma")) or partition_of(module.function) is not None:
        return  # a kernel with tasks says itself what runs ahead of what
    loops = [op for op in module.function.walk() if isinstance(op, ForOp)]
    facts: Facts | None = None
    for loop in loops:
        if not any(isinstance(op, (DotOp, AsyncDotOp)) for op in loop.body.block.ops):
            continue
        stages = loop.num_stages or module.function.num_stages
        if stages < 2:
            module.remark("pipeline", loop.loc, "not pipelined: num_stages is 1")
            continue
        facts = facts or compute(module.function)
        if not target.has("cp_async"):
            stages = 2  # copies go through registers, which hold those of one trip
        by_tma = target.has("tma") and any(isinstance(op, TmaLoadOp) for op in loop.body.block.ops)
        plan = TmaPlan(loop, stages, facts, target.max_shared_bytes) if by_tma else Plan(loop, stages, facts)
        plan.peels = not target.has("cp_async")
        why = plan.obstacle()
        if not why and plan.peels:
            plan.choose_slots(target.max_shared_bytes)
        if why:
            module.remark("pipeline", loop.loc, f"not pipelined: {why}")
            continue
        plan.rewrite()
        facts = None
        module.remark(
            "pipeline",
            loop.loc,
            f"pipelined: {plan.stages} slot{'s' if plan.stages != 1 else ''}, copies start {plan.distance} trip{'s' if plan.distance != 1 else ''} ahead"
            + (", one product stays in flight" if plan.in_flight else ""),
        )
