"""Tasks: warp groups that run different code side by side.

`task.partition` holds one region a task. Region 0 is the default task: it runs on the kernel's `num_warps` warps, and so does what stands
outside of the op. What a region uses from outside is captured: scalars, pointers, descriptors, buffers and barriers, not tiles.
"""

from __future__ import annotations

from mimw.ir.core import Region, Value
from mimw.ir.opdef import Effect, Op, attr, op, regions, result
from mimw.ir.types import I32, Type


class TaskSpec:
    """One task beside the default: its name, warps, registers a thread (0: not asked), first warp (-1: allotted), replica index."""

    __slots__ = ("name", "num_regs", "num_warps", "replica", "start_warp")

    def __init__(self, name: str, num_warps: int, num_regs: int = 0, start_warp: int = -1, replica: int = 0) -> None:
        self.name = name
        self.num_warps = num_warps
        self.num_regs = num_regs
        self.start_warp = start_warp
        self.replica = replica

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskSpec) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self.name}/{self.num_warps}/{self.num_regs}/{self.start_warp}/{self.replica}"

    __repr__ = __str__

    @staticmethod
    def parse(text: str) -> TaskSpec:
        """The inverse of `str`; ValueError otherwise."""
        name, warps, regs, start, replica = text.rsplit("/", 4)
        return TaskSpec(name, int(warps), int(regs), int(start), int(replica))


@op("task.partition", effects=[Effect("shared", "write"), Effect("global", "write")])
class PartitionOp(Op):
    """Run the tasks side by side; goes on when the default task is done (the others then run to their end on their own).

    `tasks` are the specs as text (``TaskSpec``), one a region, the default first. Bodies end in `control.yield` without values.
    """

    tasks: tuple[str, ...] = attr()
    bodies: list[Region] = regions()

    def specs(self) -> list[TaskSpec]:
        """The tasks' specs, in the order of the regions."""
        return [TaskSpec.parse(t) for t in self.tasks]


@op("task.replica_id", layout="none")
class ReplicaIdOp(Op):
    """Index of the task's replica (a constant inside each region)."""

    result: Value = result()

    def infer(self) -> list[Type]:
        return [I32]
