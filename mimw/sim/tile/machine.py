"""Runs blocks of tile IR for one task of one CTA: values, control transfer, and the watch over wrapped offsets.

Run-time values are NumPy arrays of the value's shape (scalars: zero dimensions), int64 addresses for pointers,
`Buffer` for memdescs, `InflightTile` for tiles in flight, `Mbarrier` and `BarrierArray` for barriers, `Descriptor` for
tensor descriptors. The handlers in `registry` do the work; this module knows
no op, but for the names of those that wrap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.diagnostics import InternalError, Loc, Note
from mimw.ir.core import Block, Function, OpBase, Value
from mimw.ir.types import I32, DType, PointerType, TensorType, element_of, shape_of
from mimw.sim.errors import SimulationError
from mimw.sim.scheduler import Scheduler
from mimw.sim.tile.address_space import AddressSpace
from mimw.sim.tile.cta import Cta
from mimw.sim.tile.global_races import GlobalRaces
from mimw.sim.tile.in_flight import InFlight
from mimw.sim.tile.numerics import Array, numpy_dtype
from mimw.sim.tile.races import Clock, Known, join
from mimw.sim.tile.registry import COMPUTES, EXECUTES
from mimw.sim.tile.timeline import Timeline

YIELD, BREAK, CONTINUE, RETURN = "yield", "break", "continue", "return"

_WRAPPING = frozenset({"arith.add", "arith.sub", "arith.mul"})
_KEEPS_WRAP = _WRAPPING | {"memory.ptr_add", "arith.cast", "arith.neg", "arith.select", "arith.hint", "arith.bitcast"}
_MOVES = frozenset(
    f"tensor.{verb}"
    for verb in ("splat", "expand_dims", "broadcast", "reshape", "trans", "join", "split", "cat", "convert_layout")
)


class Exit:
    """How a block ended, and the values that its terminator carries."""

    __slots__ = ("kind", "values")

    def __init__(self, kind: str, values: list[Value]) -> None:
        self.kind = kind
        self.values = values


class Wrapped:
    """Which elements of a value come from an i32 sum or product that wrapped, and the op where it did."""

    __slots__ = ("elements", "loc")

    def __init__(self, elements: Array, loc: Loc) -> None:
        self.elements = elements
        self.loc = loc


class Run:
    """What all tasks of all CTAs of a run have in common: the kernel, global memory, the grid, what is collected (`printed` lines, `findings`), and
    what is watched: `watch` waits and races in shared memory, `fences` between the proxies, `races` for global memory, times for a `timeline`."""

    __slots__ = ("fences", "findings", "function", "grid", "memory", "order", "printed", "races", "timeline", "watch")

    def __init__(
        self,
        function: Function,
        memory: AddressSpace,
        grid: tuple[int, int, int],
        *,
        watch: bool = True,
        fences: bool = False,
        races: GlobalRaces | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        self.function = function
        self.memory = memory
        self.grid = grid
        self.watch = watch
        self.fences = fences
        self.races = races
        self.timeline = timeline
        self.order: Known = {}
        self.printed: list[str] = []
        self.findings: list[SimulationError] = []


class Machine:
    """The state of one task of one CTA in a run.

    `task` is the task's name ("" where there are no tasks), `num_warps` its warps, `replica` its replica index,
    `in_flight` what it has started and not waited for, `clock` what it knows of others.
    """

    __slots__ = (
        "clock",
        "cta",
        "env",
        "function",
        "grid",
        "in_flight",
        "lifted",
        "memory",
        "num_warps",
        "pid",
        "races",
        "replica",
        "run",
        "scheduler",
        "task",
        "timeline",
        "wrap",
        "wrapped",
    )

    def __init__(self, run: Run, cta: Cta) -> None:
        self.run = run
        self.function = run.function
        self.memory = run.memory
        self.grid = run.grid
        self.races = run.races
        self.timeline = run.timeline
        self.cta = cta
        self.pid = cta.pid
        self.scheduler: Scheduler = cta.cluster.scheduler
        self.env: dict[Value, Any] = {}
        self.wrapped: dict[Value, Wrapped] = {}
        self.wrap: tuple[Loc, Loc] | None = None  # the last access by a wrapped offset, and where that wrapped
        self.in_flight = InFlight()
        self.lifted = False
        self.task = ""
        self.num_warps = run.function.num_warps
        self.replica = 0
        self.clock = Clock(self.agent_name, run.watch, run.fences)

    def fork(self, task: str, num_warps: int, replica: int) -> Machine:
        """The machine of a task that sees the values of this one."""
        m = Machine(self.run, self.cta)
        m.env = dict(self.env)
        m.wrapped = dict(self.wrapped)
        m.task = task
        m.num_warps = num_warps
        m.replica = replica
        m.clock = self.clock.fork(m.agent_name)
        return m

    @property
    def agent_name(self) -> str:
        """What the scheduler calls it."""
        what = f"task {self.task!r}" if self.task else "the kernel"
        return what if self.grid == (1, 1, 1) else f"{what} of CTA {self.pid}"

    def run_body(self, block: Block) -> None:
        """Run a task's body, or the kernel's, to its end."""
        try:
            with np.errstate(all="ignore"):
                self.run_block(block)
        except SimulationError as e:
            self.blame(e)
            raise
        join(self.cta.cluster.known, self.clock.known)

    def blame(self, e: SimulationError) -> None:
        """Say in an error that it is this task's, unless it is somebody's already. A deadlock is everybody's."""
        if e.code == "out-of-bounds" and self.wrap is not None and e.loc == self.wrap[0] and not e.notes:
            e.notes.append(Note("an i32 offset that reaches this address wraps here", self.wrap[1]))
            e.hint = e.hint or _WIDER
        if e.program is None and e.code != "deadlock":
            e.program = self.pid
            e.task = self.task
            e.iteration = tuple(self.clock.trips)
            e.after = self.clock.after

    def run_block(self, block: Block) -> Exit:
        """Run a block up to its terminator."""
        env, timeline = self.env, self.timeline
        op: OpBase | None = None
        try:
            for op in block.ops:
                if timeline is not None:
                    timeline.before(self, op)
                compute = COMPUTES.get(op.spec.name)
                if compute is not None:
                    out = compute(op, *[env[v] for v in op.operands])
                    self._bind_results(op, out)
                    if self.wrapped or op.spec.name in _WRAPPING:
                        self._follow_wraps(op, compute)
                else:
                    exit = EXECUTES[op.spec.name](self, op)
                    if exit is not None:
                        return exit
                if timeline is not None:
                    timeline.after(self, op)
        except SimulationError as e:
            if e.loc is None and op is not None:
                e.loc = op.loc
            raise
        raise InternalError("a block has no terminator", op.loc if op is not None else self.function.loc)

    def _bind_results(self, op: OpBase, out: Any) -> None:
        if len(op.results) == 1:
            self.set(op.results[0], out)
            return
        for r, x in zip(op.results, out, strict=True):
            self.set(r, x)

    def set(self, v: Value, x: Any) -> None:
        """Give a value its run-time value; arrays must have the declared type."""
        t = v.type
        if isinstance(t, (DType, PointerType, TensorType)):
            x = np.asarray(x)
            if x.dtype != numpy_dtype(element_of(t)) or (x.shape != shape_of(t) and not self.lifted):
                op = v.defining_op
                what = op.name if op is not None else "a block argument"
                raise InternalError(f"{what} gave {x.dtype}{list(x.shape)} for {t}", op.loc if op is not None else None)
        self.env[v] = x
        if self.wrapped:
            self.wrapped.pop(v, None)

    def get(self, v: Value | None) -> Any:
        """The run-time value; None for an operand that is absent."""
        return None if v is None else self.env[v]

    def transfer(self, targets: list[Value], sources: list[Value]) -> None:
        """Assign values to block arguments or results, all at once."""
        values = [self.env[v] for v in sources]
        marks = [self.wrapped.get(v) for v in sources] if self.wrapped else []
        for t, x in zip(targets, values, strict=True):
            self.set(t, x)
        for t, mark in zip(targets, marks, strict=False):
            if mark is not None:
                self.wrapped[t] = mark

    def warn(self, e: SimulationError) -> None:
        """Leave a warning, once a place."""
        places = [n.loc for n in e.notes]
        if any((w.code, w.loc) == (e.code, e.loc) and [n.loc for n in w.notes] == places for w in self.run.findings):
            return
        e.severity = "warning"
        self.blame(e)
        self.run.findings.append(e)

    def touch(self, op: OpBase, kind: str, ptr: Array, mask: Array | None, size: int) -> None:
        """A plain access of global memory, through addresses of elements of `size` bytes."""
        if self.races is not None:
            found = self.races.elements(self.memory, self.clock, op.loc, kind, ptr, mask, size)
            if found is not None:
                self.warn(found)

    def touch_block(self, op: OpBase, kind: str, view: Array | None) -> None:
        """The same of a copying engine, for a view of global memory (None: all of it lies outside)."""
        if self.races is not None and view is not None:
            found = self.races.block(self.memory, self.clock, op.loc, kind, view)
            if found is not None:
                self.warn(found)

    # -- wrapped offsets -----------------------------------------------------------------------------------------------

    def _follow_wraps(self, op: OpBase, compute: Any) -> None:
        name = op.spec.name
        marks = [self.wrapped.get(v) for v in op.operands]
        if name in _WRAPPING and len(op.results) == 1 and element_of(op.results[0].type) is I32:
            a, b = (self.env[v] for v in op.operands)
            over = overflows(name, a, b, self.env[op.results[0]])
            if over is not None:
                marks.append(Wrapped(over, op.loc))
        found = [m for m in marks if m is not None]
        if not found:
            return
        if name in _MOVES:
            none = np.zeros((), np.bool_)
            inputs = [
                m.elements if m is not None else np.broadcast_to(none, np.shape(self.env[v]))
                for v, m in zip(op.operands, marks, strict=True)
            ]
            out = compute(op, *inputs)
            outs = [out] if len(op.results) == 1 else list(out)
            for r, x in zip(op.results, outs, strict=True):
                self.wrapped[r] = Wrapped(np.asarray(x), found[0].loc)
        elif name in _KEEPS_WRAP and _may_be_offset(op.results[0]):
            elements: Any = False
            for m in found:
                elements = elements | m.elements
            if name == "arith.select":
                cond = self.env[op.operands[0]]
                no = np.False_
                elements = np.where(cond, *[m.elements if m is not None else no for m in marks[1:]])
            self.wrapped[op.results[0]] = Wrapped(np.asarray(elements), found[0].loc)

    def check_wraps(self, op: OpBase, ptr: Value, mask: Array | None) -> None:
        """Warn when an address that is used comes from an offset that wrapped."""
        mark = self.wrapped.get(ptr)
        if mark is None:
            return
        used = mark.elements if mask is None else mark.elements & mask
        if used.any():
            index = [int(i) for i in np.argwhere(used)[0]]
            which = f", element {index}" if index else ""
            text = f"an i32 offset wraps here and reaches the address of {op.name} at {op.loc}{which}"
            self.warn(SimulationError("wrapped-offset", text, mark.loc, hint=_WIDER))
            self.wrap = (op.loc, mark.loc)


_WIDER = "compute the offset in ml.int64"


def _may_be_offset(v: Value) -> bool:
    e = element_of(v.type)
    return isinstance(e, PointerType) or e.kind in ("int", "uint")


def overflows(name: str, a: Array, b: Array, out: Array) -> Array | None:
    """Which elements of an i32 sum, difference or product wrapped; None for none."""
    if name == "arith.add":
        over = ((a ^ out) & (b ^ out)) < 0
    elif name == "arith.sub":
        over = ((a ^ b) & (a ^ out)) < 0
    else:
        over = a.astype(np.int64) * b.astype(np.int64) != out
    over = np.asarray(over)
    return over if over.any() else None
