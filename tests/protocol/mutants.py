"""Mutants of right kernels: one wait, arrive, count, phase or order of theirs is dropped or weakened; and who notices.

Works on tile IR as traced. A `Launch` is what a launch on host arrays comes down to, taken from a call of the kernel's own entry, so that nothing
here depends on how a kernel is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mimw.compiler import StageTimes, compile_module, simulated_kernel
from mimw.diagnostics import CompilationError
from mimw.ir.builder import Builder
from mimw.ir.core import Block, Function, Module, OpBase, Value
from mimw.ir.ops.arith import ConstantOp
from mimw.ir.ops.barrier import NamedArriveOp
from mimw.ir.rewriter import clone_function
from mimw.ir.types import I32, BarrierType, TensorType
from mimw.jit import Kernel
from mimw.passes import pipeline
from mimw.passes.protocol import check as protocol
from mimw.runtime.tensor_descriptor import TensorDescriptor
from mimw.sim.errors import SimulationError
from mimw.sim.ptx.run import run_ptx
from mimw.sim.tile import run_on_host
from mimw.target import get_target
from tests.kernels.engines import described

TARGET = get_target("sm_90a")
COUNTED = ("mma.async_dot_wait", "async_copy.tma_store_wait", "async_copy.wait_group")
DROPPED = (
    "barrier.wait", "barrier.arrive", "barrier.expect", "barrier.named_wait", "barrier.named_arrive", "async_copy.tma_store_wait",
    "cluster.sync",
)  # fmt: skip

Change = Callable[[Function, OpBase], None]


class Launch:
    """A kernel in tile IR, its arguments, and what the arrays hold after a right run."""

    def __init__(self, entry: Callable[[], Any]) -> None:
        found: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Kernel, "_simulate", lambda *args: found.append(args))
            entry()
        kernel, self.grid, values, infos, options = found[0]
        special = kernel.specialise(values)
        self.module: Module = simulated_kernel(kernel.fn, kernel.signature(special, values), options)
        self.infos = [infos[i] for i, k in enumerate(special) if k[0] != "c"]
        self.values = [v for v, k in zip(values, special, strict=True) if k[0] != "c"]
        self.arrays = [root(v) for v in self.values if isinstance(v, (np.ndarray, TensorDescriptor))]
        self.before = [a.copy() for a in self.arrays]
        self.in_tile(self.module, 0)
        self.want = [a.copy() for a in self.arrays]

    def restore(self) -> None:
        """The arrays hold what they held at first."""
        for a, old in zip(self.arrays, self.before, strict=True):
            a[...] = old

    def right(self) -> bool:
        """Whether the arrays hold what a right run leaves."""
        return all(
            (a == w).all() or np.array_equal(a, w, equal_nan=True) for a, w in zip(self.arrays, self.want, strict=True)
        )

    def in_tile(self, module: Module, seed: int) -> None:
        """Run in the tile simulator."""
        self.restore()
        run_on_host(module, self.infos, self.grid, seed=seed)

    def in_ptx(self, text: str, kernel: Any, seed: int) -> None:
        """Run the text."""
        self.restore()
        records = iter(kernel.metadata.extra.get("descriptors", ()))
        passed = [described(v, next(records)) if isinstance(v, TensorDescriptor) else v for v in self.values]
        run_ptx(text, None, self.grid, passed, shared_bytes=kernel.metadata.shared_bytes, seed=seed, max_steps=400_000)


def root(v: Any) -> Any:
    """The memory of an argument that a kernel may write."""
    a = v.base if isinstance(v, TensorDescriptor) else v
    while isinstance(a.base, np.ndarray):
        a = a.base
    return a


class Mutant:
    """One change of one op: `place` in the order of a walk, `what` for people."""

    def __init__(self, place: int, what: str, change: Change) -> None:
        self.place = place
        self.what = what
        self.change = change

    def apply(self, module: Module) -> Module:
        """The changed kernel."""
        fn = clone_function(module.function)
        self.change(fn, list(fn.walk())[self.place])
        return Module(fn)


def mutants(module: Module) -> list[Mutant]:
    """All that there are."""
    out: list[Mutant] = []
    for place, op in enumerate(module.function.walk()):
        at = f"line {op.loc.line}: {op.name}"
        for what, change in changes(op):
            out.append(Mutant(place, f"{at}: {what}", change))
    return out


def changes(op: OpBase) -> list[tuple[str, Change]]:
    """What may be done to an op."""
    out: list[tuple[str, Change]] = []
    if _made_right(op):
        return out
    if op.name in DROPPED:
        out.append(("dropped", lambda fn, op: op.erase()))
    if op.name in COUNTED:
        out.append(("one more may be pending", lambda fn, op: op.attrs.update(pendings=op.attrs["pendings"] + 1)))
    if op.name == "barrier.wait":
        out.append(("for the other phase", _other_phase))
    if op.name == "barrier.expect":
        out.append(("half of the bytes", lambda fn, op: op.attrs.update(bytes=op.attrs["bytes"] // 2)))
        out.append(("twice the bytes", lambda fn, op: op.attrs.update(bytes=op.attrs["bytes"] * 2)))
    if op.name == "barrier.alloc":
        out.append(("one more arrival", lambda fn, op: _count(op, 1)))
        if op.attrs["type"].arrive_count > 1:
            out.append(("one arrival less", lambda fn, op: _count(op, -1)))
    if op.name == "barrier.arrive" and _wait_before(op) is not None:
        out.append(("right behind the wait", _early))
    if op.name == "barrier.named_wait":
        out.append(("arrives only", _named_arrives))
    return out


def _made_right(op: OpBase) -> bool:
    """What changes nothing, or cannot be written."""
    return last_store_wait(op) or wait_for_a_result(op)


def last_store_wait(op: OpBase) -> bool:
    """A task's last wait for its stores. Without it nothing changes: the buffer is not written again, the compiler adds a wait for all
    stores at the end of the task, since shared memory goes with the CTA, and a kernel is over when its stores are."""
    block = op.parent
    assert block is not None
    if op.name != "async_copy.tma_store_wait":
        return False
    last = all(o.spec.terminator for o in block.ops[block.ops.index(op) + 1 :])
    return last and (block.parent_op is None or block.parent_op.name == "task.partition")


def wait_for_a_result(op: OpBase) -> bool:
    """A wait for products whose result is used. With one more pending the result is still in flight: by the types no use takes it."""
    return op.name == "mma.async_dot_wait" and any(isinstance(r.type, TensorType) for r in op.results)


def _other_phase(fn: Function, op: OpBase) -> None:
    block = op.parent
    assert block is not None
    one = ConstantOp(1, I32, loc=op.loc)
    block.insert_before(op, one)
    scratch = Block()
    b = Builder(scratch, op.loc)
    phase: Value = op.operands[1]
    value = b.elementwise("arith.xor", phase, one.result)
    made = scratch.ops[-1]
    scratch.ops.remove(made)
    block.insert_before(op, made)
    op.set_operand(1, value)


def _count(op: OpBase, more: int) -> None:
    t = op.attrs["type"]
    op.attrs["type"] = BarrierType(t.count, t.arrive_count + more, t.remote)
    pending = [op.results[0]]
    while pending:
        v = pending.pop()
        t = v.type
        assert isinstance(t, BarrierType)
        v.type = BarrierType(t.count, t.arrive_count + more, t.remote)
        for user in v.users:
            pending += [r for r in user.results if isinstance(r.type, BarrierType)]


def _wait_before(op: OpBase) -> OpBase | None:
    """The wait before an arrive in its block, where something that matters lies between them."""
    block = op.parent
    assert block is not None
    between = False
    for other in reversed(block.ops[: block.ops.index(op)]):
        if other.name == "barrier.wait":
            return other if between else None
        between |= other.name in ("mma.async_dot_wait", "memory.local_load", "memory.local_store", "mma.async_dot")
    return None


def _early(fn: Function, op: OpBase) -> None:
    """The arrive, and what it needs, move up to the wait."""
    wait, block = _wait_before(op), op.parent
    assert wait is not None and block is not None
    start = block.ops.index(wait) + 1
    needed = {op}
    for other in reversed(block.ops[start : block.ops.index(op)]):
        if any(r in user.operands for r in other.results for user in needed):
            needed.add(other)
    moved = [o for o in block.ops if o in needed]
    rest = [o for o in block.ops if o not in needed]
    at = rest.index(wait) + 1
    block.ops[:] = rest[:at] + moved + rest[at:]


def _named_arrives(fn: Function, op: OpBase) -> None:
    block = op.parent
    assert block is not None
    new = object.__new__(NamedArriveOp)
    new.attrs, new.segments, new.loc, new.parent = dict(op.attrs), op.segments, op.loc, None
    new.operands, new.results, new.regions = list(op.operands), [], []
    for v in new.operands:
        v.users.append(new)
    block.insert_before(op, new)
    op.erase()


def caught_by_checks(module: Module) -> bool:
    """Whether a compile refuses it."""
    try:
        pipeline.run(Module(clone_function(module.function)), TARGET, passes=pipeline.PROTOCOL)
    except CompilationError:
        return True
    return False


def caught_in_tile(launch: Launch, module: Module, seeds: int) -> str:
    """The code of what the tile simulator says, "result" when it says nothing and the result is wrong, "" when all is right."""
    for seed in range(seeds):
        try:
            launch.in_tile(module, seed)
        except SimulationError as e:
            return e.code
        if not launch.right():
            return "result"
    return ""


def outcome_in_tile(launch: Launch, module: Module, seeds: int) -> str:
    """What happens where nobody watches, as on hardware: "" when all runs end with the right result, else the first that does not: "result",
    or the code of a run that does not come to its end."""
    for seed in range(seeds):
        launch.restore()
        try:
            run_on_host(module, launch.infos, launch.grid, seed=seed, checks="none")
        except SimulationError as e:
            return e.code
        if not launch.right():
            return "result"
    return ""


def caught_in_text(launch: Launch, module: Module, seeds: int) -> str:
    """The same of the compiled text in the PTX simulator; the checks of the compile are left out."""
    passes = tuple(p for p in pipeline.PASSES if p is not protocol)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "PASSES", passes)
        patch.setattr(pipeline.run, "__kwdefaults__", {"verify_each": True, "passes": passes})
        kernel = compile_module(Module(clone_function(module.function)), TARGET, {}, StageTimes())
    text = kernel.asm["ptx"]
    assert isinstance(text, str)
    for seed in range(seeds):
        try:
            launch.in_ptx(text, kernel, seed)
        except SimulationError as e:
            return e.message
        if not launch.right():
            return "result"
    return ""


INSERTED = (
    r"fence\.proxy\.async\S*|fence\.mbarrier_init\S*|mbarrier\.init\S*|wgmma\.(fence|commit_group|wait_group)\S*"
    r"|cp\.async\.bulk\.commit_group|cp\.async\.bulk\.wait_group\.read|bar\.sync"
)


def text_mutants(launch: Launch, names: str = INSERTED) -> tuple[Any, list[tuple[str, str]]]:
    """The compiled kernel, and for each of its instructions of these names the line, and the text without it. Waits that stand
    before one for all stores at the end of a task are left out: nothing hangs on them."""
    kernel = compile_module(Module(clone_function(launch.module.function)), TARGET, {}, StageTimes())
    text = kernel.asm["ptx"]
    assert isinstance(text, str)
    lines = text.splitlines()
    out: list[tuple[str, str]] = []
    for i, line in enumerate(lines):
        last = ".read" in line and any("bulk.wait_group 0" in after for after in lines[i + 1 : i + 3])
        if re.match(rf"\s*(@!?%\w+\s+)?({names})[ ;]", line) and not last:
            out.append((f"{i + 1}: {line.strip()}", "\n".join([*lines[:i], *lines[i + 1 :]])))
    return kernel, out


def noticed_in(launch: Launch, kernel: Any, text: str, seeds: int) -> bool:
    """Whether the PTX simulator finds a text wrong, or gives another result."""
    for seed in range(seeds):
        try:
            launch.in_ptx(text, kernel, seed)
        except SimulationError:
            return True
        if not launch.right():
            return True
    return False
