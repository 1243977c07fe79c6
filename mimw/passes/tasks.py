"""Where tasks stand in a function: the one partition, and how many warps run an op. Shared by passes; changes nothing."""

from __future__ import annotations

from mimw.ir.core import Block, Function, OpBase
from mimw.ir.ops.task import PartitionOp


def partition_of(function: Function) -> PartitionOp | None:
    """The function's `task.partition`, which stands at its top level; None without tasks."""
    return next((op for op in function.block.ops if isinstance(op, PartitionOp)), None)


class TaskMap:
    """Which task runs an op, and on how many warps. Task 0 is the default one: its region, and all that stands outside of the partition."""

    __slots__ = ("count", "names", "partition", "task_of", "warps")

    def __init__(self, function: Function) -> None:
        self.partition = partition_of(function)
        self.task_of: dict[Block, int] = {}
        self.warps = [function.num_warps]
        self.names = ["default"]
        if self.partition is not None:
            specs = self.partition.specs()
            self.warps += [s.num_warps for s in specs[1:]]
            self.names = [task_name(s.name, s.replica, [t.name for t in specs]) for s in specs]
            for i, region in enumerate(self.partition.regions):
                self.task_of[region.block] = i
        self.count = len(self.warps)

    def of(self, block: Block | None) -> int:
        """The task that runs a block."""
        while block is not None:
            found = self.task_of.get(block)
            if found is not None:
                return found
            op = block.parent_op
            block = op.parent if op is not None else None
        return 0

    def warps_of(self, op: OpBase) -> int:
        """Warps that run an op."""
        return self.warps[self.of(op.parent)]


def task_name(name: str, replica: int, names: list[str]) -> str:
    """How messages call a task: its name, with the replica's index where there are several of that name."""
    return f"{name}[{replica}]" if names.count(name) > 1 else name
