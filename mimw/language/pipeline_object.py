"""A pipeline: a ring of buffers between a producer and its consumers that carries slots and phases by itself. An addition to TLX.

    pipe = ml.pipeline(STAGES, a=((BM, BK), ml.float16), b=((BK, BN), ml.float16), consumers=2)

    with ml.async_task("default"):              # the producer
        for k in range(n):
            with pipe.produce() as s:           # waits for a free slot, expects the bytes of a and b
                ml.async_descriptor_load(desc_a, s.a, [m, k * BK], s.full)
                ml.async_descriptor_load(desc_b, s.b, [k * BK, n], s.full)

    with ml.async_task(num_warps=4, replicate=2):   # the consumers
        for k in range(n):
            with pipe.consume() as s:           # waits until the slot is full, gives it back
                acc = ml.async_dot_wait(0, ml.async_dot(s.a, s.b, acc))

A task has a position of its own at each end; it starts at the first slot. The fields of `pipeline` are carried by loops as those of any record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from mimw.ir.builder import current_builder
from mimw.ir.types import I32
from mimw.language import semantic
from mimw.language.barrier import MAX_BYTES, alloc_barriers, barrier_arrive, barrier_expect_bytes, barrier_wait
from mimw.language.core import const_bool, const_int, explain, is_tuple, tensor, unwrap
from mimw.language.errors import fail
from mimw.language.handles import buffered_tensor, mbarrier, moving, traced
from mimw.language.local import local_alloc


class Ring:
    """What a pipeline never changes: its buffers by name, its barriers, its numbers."""

    __slots__ = ("buffers", "bytes", "consumers", "empty", "full", "stages", "tma")

    def __init__(self, stages: int, buffers: dict[str, buffered_tensor], consumers: int, tma: bool) -> None:
        self.stages = stages
        self.buffers = buffers
        self.consumers = consumers
        self.tma = tma
        self.bytes = sum(buf.dtype.itemsize * buf.numel // stages for buf in buffers.values())
        self.full: mbarrier = alloc_barriers(stages, 1)
        self.empty: mbarrier = alloc_barriers(stages, consumers)
        self.full.value.name, self.empty.value.name = "full", "empty"


class pipeline_slot(traced):
    """One slot of a pipeline: its buffers by their names, `full`, `empty` (its barriers), `index`."""

    __dataclass_fields__: ClassVar[dict[str, None]] = dict.fromkeys(("ring", "index"))  # a record to the frontend

    ring: Ring
    index: Any

    def __init__(self, ring: Ring, index: Any) -> None:
        self.ring = ring
        self.index = index

    def __getattr__(self, name: str) -> Any:
        ring = self.__dict__.get("ring")
        if ring is None:
            raise AttributeError(name)
        if name in ("full", "empty"):
            return getattr(ring, name)[self.index]
        if name in ring.buffers:
            return ring.buffers[name][self.index]
        raise AttributeError(name)


class pipeline(moving):
    """A ring of `stages` slots; each keyword is a buffer, given as ``(shape, dtype)``. Stands outside of tasks.

    `consumers` tasks (or replicas) take every slot and give it back. With `tma` the producer fills all buffers of a slot
    by asynchronous copies on ``slot.full``: `acquire` expects their bytes. Without, it stores them itself, and `commit`
    says that the slot is full.

    Producer: ``s = pipe.acquire()``, then `commit`; or ``with pipe.produce() as s``. Consumer: ``s = pipe.wait()``, then
    `release`; or ``with pipe.consume() as s``. Several slots may be held: `commit` and `release` hand on the oldest one.
    """

    __dataclass_fields__: ClassVar[dict[str, None]] = dict.fromkeys(
        ("ring", "acquired", "acquire_phase", "committed", "waited", "wait_phase", "released")
    )  # a record to the frontend: loops carry the positions

    ring: Ring
    acquired: Any
    acquire_phase: Any
    committed: Any
    waited: Any
    wait_phase: Any
    released: Any

    def __init__(self, stages: int, *, consumers: int = 1, tma: bool = True, **buffers: Any) -> None:
        current_builder("pipeline")
        n = const_int(stages, "pipeline: stages")
        count = const_int(consumers, "pipeline: consumers")
        if n < 1 or count < 1:
            fail("bad-argument", f"pipeline: {n} stages for {count} consumers")
        if not buffers:
            fail("bad-argument", "pipeline: no buffers", "name them: ml.pipeline(4, a=((64, 64), ml.float16))")
        rings: dict[str, buffered_tensor] = {}
        for name, asked in buffers.items():
            asked = unwrap(asked)
            if not is_tuple(asked) or len(asked) != 2:
                fail("bad-argument", f"pipeline: {name} is {explain(asked)}", f"write {name}=(shape, dtype)")
            if name in ("full", "empty", "index", "ring"):
                fail("bad-argument", f"pipeline: a buffer cannot be named {name}: slots have that already")
            rings[name] = local_alloc(asked[0], asked[1], n)
            rings[name].value.name = name
        self.ring = Ring(n, rings, count, const_bool(tma, "pipeline: tma"))
        if self.ring.bytes > MAX_BYTES:
            fail("bad-argument", f"pipeline: {self.ring.bytes} bytes a slot; a barrier counts up to {MAX_BYTES}")
        self.acquired = self.committed = self.waited = self.released = 0
        self.acquire_phase = 1  # a fresh barrier lets the first wait of the producer pass
        self.wait_phase = 0

    def moved_by(self, methods: set[str]) -> set[str]:
        """The positions that change where these methods are called."""
        at: set[str] = set()
        phases: set[str] = set()
        if methods & {"acquire", "produce"}:
            at.add("acquired")
            phases.add("acquire_phase")
        if methods & {"commit", "produce"} and not self.ring.tma:
            at.add("committed")
        if methods & {"wait", "consume"}:
            at.add("waited")
            phases.add("wait_phase")
        if methods & {"release", "consume"}:
            at.add("released")
        return phases if self.ring.stages == 1 else at | phases

    # The producer's end.

    def acquire(self) -> pipeline_slot:
        """The next slot, once its consumers have given it back; announces the bytes of its buffers (with `tma`)."""
        ring = self.ring
        index = _position(self.acquired)
        slot = pipeline_slot(ring, index)
        barrier_wait(slot.empty, self.acquire_phase)
        if ring.tma:
            barrier_expect_bytes(slot.full, ring.bytes)
        self.acquired, self.acquire_phase = _advance(index, self.acquire_phase, ring.stages)
        return slot

    def commit(self) -> None:
        """The oldest acquired slot is filled. With `tma` the copies say so themselves, and this does nothing."""
        if not self.ring.tma:
            index = _position(self.committed)
            barrier_arrive(self.ring.full[index])
            self.committed = _after(index, self.ring.stages)

    def produce(self) -> pipeline_end:
        """``with pipe.produce() as s:``: a slot of `acquire`, filled at the end of the body. No older slot may be held."""
        return pipeline_end(self, True)

    # The consumer's end.

    def wait(self) -> pipeline_slot:
        """The next slot, once it is full."""
        index = _position(self.waited)
        slot = pipeline_slot(self.ring, index)
        barrier_wait(slot.full, self.wait_phase)
        self.waited, self.wait_phase = _advance(index, self.wait_phase, self.ring.stages)
        return slot

    def release(self) -> None:
        """Give the oldest slot that this task holds back to the producer."""
        index = _position(self.released)
        barrier_arrive(self.ring.empty[index])
        self.released = _after(index, self.ring.stages)

    def consume(self) -> pipeline_end:
        """``with pipe.consume() as s:``: a slot of `wait`, given back at the end of the body. No older slot may be held."""
        return pipeline_end(self, False)


class pipeline_end(traced):
    """What `produce` and `consume` give: for `with` only."""

    __slots__ = ("pipe", "producer", "slot")

    if TYPE_CHECKING:  # for checkers of kernel code: the frontend opens the region itself

        def __enter__(self) -> pipeline_slot: ...
        def __exit__(self, *_: object) -> None: ...

    def __init__(self, pipe: pipeline, producer: bool) -> None:
        self.pipe = pipe
        self.producer = producer
        self.slot: Any = None

    def enter(self) -> pipeline_slot:
        """The start of the `with`."""
        self.slot = self.pipe.acquire() if self.producer else self.pipe.wait()
        return self.slot

    def leave(self) -> None:
        """The end of the `with`: hands on its own slot. (Its position is known, so that no loop carries another one.)"""
        pipe, slot = self.pipe, self.slot
        if not self.producer:
            barrier_arrive(slot.empty)
            pipe.released = pipe.waited
        elif not pipe.ring.tma:
            barrier_arrive(slot.full)
            pipe.committed = pipe.acquired


def _position(at: Any) -> Any:
    if not isinstance(at, (int, tensor)):
        hint = "use each end of a pipeline inside tasks only, or outside of them only"
        fail("task-local", "this end of the pipeline was used inside a task: its position is not known here", hint)
    return at


def _after(index: Any, stages: int) -> Any:
    """The slot after this one."""
    return _advance(index, None, stages)[0]


def _advance(index: Any, phase: Any, stages: int) -> tuple[Any, Any]:
    """The position after this one; the phase (None: not asked for) turns where the ring starts anew."""
    if not isinstance(index, tensor):
        turns = index + 1 == stages
        return (0 if turns else index + 1), (phase ^ 1 if turns and phase is not None else phase)
    if stages == 1:
        return 0, None if phase is None else phase ^ 1
    b = current_builder("pipeline")
    after = semantic.binary("add", index.value, 1)
    last = semantic.compare("eq", after, stages)
    wrapped = tensor(b.elementwise("arith.select", last, semantic.constant(0, I32), after))
    return wrapped, None if phase is None else tensor(semantic.cast(last, I32)) ^ phase
