"""What is said when nobody can go on: one line a task, who could still come, and a hint."""

from __future__ import annotations

from typing import Any

from mimw.ir.core import Function, OpBase, Value
from mimw.ir.ops.task import PartitionOp
from mimw.sim.agents import Agent, Wait
from mimw.sim.errors import SimulationError, in_iteration
from mimw.sim.tile.mbarrier import PhaseWait

_ARRIVING = {
    "barrier.arrive": 0,
    "barrier.expect": 0,
    "async_copy.tma_load": 2,
    "async_copy.bulk_load": 2,
    "cluster.async_remote_store": 3,
    "cluster.async_remote_copy": 3,
}
_VIEWS = ("barrier.view", "barrier.remote_view")


def report(function: Function, agents: list[Agent]) -> SimulationError:
    """The error for agents that all wait, with nothing under way."""
    waits = [(a, a.wait) for a in agents if a.wait is not None]
    partners = arriving_tasks(function)
    lines: list[str] = []
    hints: list[str] = []
    for agent, wait in waits:
        when = in_iteration(tuple(agent.trips), ", ")
        lines.append(f"  {wait.loc}: {agent.name}{when} waits for {wait.describe()}{_who(wait, partners)}")
        hint = wait.hint()
        if hint is not None and hint not in hints:
            hints.append(hint)
    one = len(waits) == 1
    head = "the one task left waits" if one else f"all {len(waits)} tasks wait"
    text = "\n".join([f"deadlock: {head}, and no copy or product is under way that could help", *lines])
    if not hints:
        hints.append(
            "each task waits for an arrival that another one makes only after its own wait: look for the cycle"
        )
    graph = [_edge(a, w, partners) for a, w in waits]
    return SimulationError("deadlock", text, waits[0][1].loc, hint="; ".join(hints), waits=graph)


def _edge(agent: Agent, wait: Wait, partners: dict[object, list[str]]) -> dict[str, Any]:
    """Who waits for what, and who could end it: one node of the wait-for graph, in JSON's types."""
    return {
        "task": agent.name,
        "line": wait.loc.line,
        "file": wait.loc.file,
        "iteration": [{"name": name, "value": value} for name, value in agent.trips],
        "for": wait.describe(),
        "arrivals_from": _names(wait, partners),
        **(wait.facts() if isinstance(wait, PhaseWait) else {}),
    }


def _names(wait: Wait, partners: dict[object, list[str]]) -> list[str]:
    """The tasks that arrive on the barrier anywhere in their text."""
    return partners.get(wait.barrier.array.key, []) if isinstance(wait, PhaseWait) else []


def _who(wait: Wait, partners: dict[object, list[str]]) -> str:
    if not isinstance(wait, PhaseWait):
        return ""
    names = _names(wait, partners)
    if not names:
        return "" if None in partners else "; nobody arrives on it"
    return f"; arrivals come from {', '.join(names)}"


def arriving_tasks(function: Function) -> dict[object, list[str]]:
    """For the ops that make barriers: the tasks that arrive on them or start copies that count on them."""
    found: dict[object, list[str]] = {}
    partition = next((op for op in function.walk() if isinstance(op, PartitionOp)), None)
    if partition is not None:
        for spec, region in zip(partition.specs(), partition.bodies, strict=True):
            for op in region.block.ops:
                for inner in op.walk():
                    _note(inner, spec.name, found)
    for op in function.block.ops:
        if op is not partition:
            for inner in op.walk():
                _note(inner, "the code outside of tasks" if partition is not None else "the kernel itself", found)
    return found


def _note(op: OpBase, task: str, found: dict[object, list[str]]) -> None:
    at = _ARRIVING.get(op.name)
    if at is None:
        return
    names = found.setdefault(_origin(op.operands[at]), [])
    if task not in names:
        names.append(task)


def _origin(barrier: Value) -> OpBase | None:
    """The op that made a barrier; None when it comes through a block argument."""
    op = barrier.defining_op
    while op is not None and op.name in _VIEWS:
        op = op.operands[0].defining_op
    return op
