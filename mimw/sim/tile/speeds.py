"""How fast the machines are, in a simple model: a table of latencies and rates a target, and what an op costs by it.

Cycles of one SM that a kernel has to itself. The model knows that engines have queues, that loads come late, and how many lanes a task has; it
knows no caches, no bank conflicts, no contention between tasks for lanes, and no code that the compiler moves. It is there to show who waits for
whom, not to predict a time. Peak rates are the vendors' (H100/H200: 989 TFLOP/s of dense bf16 on 132 SMs at 1.83 GHz are 4096 flops, 2048
multiplications, a cycle; `wgmma.m64n256k16` then takes 128); latencies are rounded from published microbenchmarks. Copies get the 64 bytes a
cycle of an SM's port to L2: with all SMs at it, memory gives each about 18 (an H200 copies 4,230 GB/s, measured).
"""

from __future__ import annotations

import math

from mimw.ir.core import OpBase, Value
from mimw.ir.types import MemDescType, PointerType, element_of, shape_of


class Speeds:
    """One target. `latency` is cycles until the first result, `rate` what an engine does a cycle: bytes, or multiplications of 16-bit
    numbers for the tensor core. `lanes`: fp32 lanes; `special`: lanes for exp, log, sin, ...; `ghz`: the clock, for times in seconds."""

    __slots__ = ("ghz", "lanes", "latency", "name", "rate", "special")

    def __init__(self, name: str, ghz: float, tensor_core: float, lanes: int = 128) -> None:
        self.name = name
        self.ghz = ghz
        self.lanes = lanes
        self.special = 16
        self.rate = {
            TENSOR_CORE: tensor_core,
            TMA_LOAD: 64.0,
            TMA_STORE: 64.0,
            CP_ASYNC: 64.0,
            "global": 64.0,
            "shared": 128.0,
        }
        self.latency = {
            TENSOR_CORE: 32.0,
            TMA_LOAD: 700.0,
            TMA_STORE: 500.0,
            CP_ASYNC: 600.0,
            "global": 600.0,
            "shared": 30.0,
            "atomic": 700.0,
            "barrier": 20.0,
            "cluster": 200.0,
        }


TENSOR_CORE, TMA_LOAD, TMA_STORE, CP_ASYNC = "tensor core", "TMA load", "TMA store", "cp.async"

SPEEDS: dict[str, Speeds] = {
    s.name: s
    for s in (
        Speeds("sm_80", 1.41, 1024, lanes=64),
        Speeds("sm_86", 1.7, 512),
        Speeds("sm_89", 2.5, 512),
        Speeds("sm_90a", 1.83, 2048),
        Speeds("sm_100a", 1.85, 4096),
        Speeds("sm_120a", 2.4, 512),
    )
}
"""By target's name. Nobody has compared the times that come out with a device's."""

_SPECIAL = frozenset(
    f"math.{name}" for name in ("exp", "exp2", "log", "log2", "sin", "cos", "tan", "tanh", "rsqrt", "sqrt", "erf")
)
_FREE = frozenset({"arith.constant", "arith.hint", "arith.bitcast", "mma.as_inflight", "task.replica_id"})
_FREE_FAMILIES = ("tensor.", "control.", "debug.", "task.")
_SUMMED = ("tensor.reduce", "tensor.scan")
_VIEWS = ("memory.local_view", "memory.local_trans", "memory.local_slice", "memory.local_reinterpret")
_STEPS = 5  # of a reduction or scan among the lanes of a warp


def engine_of(what: str) -> str:
    """Which engine does a job of this kind (`Job.what`)."""
    if what == "product":
        return TENSOR_CORE
    if what == "cp.async":
        return CP_ASYNC
    return TMA_STORE if "store" in what and not what.startswith("remote") else TMA_LOAD


def _shape(v: Value) -> tuple[int, ...]:
    return v.type.shape if isinstance(v.type, MemDescType) else shape_of(v.type)


def _bits(v: Value) -> int:
    """Bits of an element; 64 for pointers."""
    e = v.type.dtype if isinstance(v.type, MemDescType) else element_of(v.type)
    return 64 if isinstance(e, PointerType) else e.bits


def multiplications(op: OpBase) -> float:
    """Of a product, as many of 16-bit numbers take the same time: 8-bit ones are twice as fast, tf32 half as fast."""
    a, b = op.operands[0], op.operands[1]
    return math.prod(_shape(a)) * _shape(b)[-1] * max(8, _bits(a)) / 16


def cost(op: OpBase, warps: int, speeds: Speeds) -> float:
    """Cycles that a task of some warps is busy with an op; what it waits for comes on top."""
    name = op.spec.name
    family = name.split(".")[0]
    if name in _SUMMED:
        return math.prod(_shape(op.operands[0])) / _lanes(warps, speeds) + _STEPS * speeds.latency["shared"]
    allocates = name in ("memory.local_alloc", "memory.storage") and not op.operands
    if allocates or name in _FREE or name in _VIEWS or name.startswith(_FREE_FAMILIES):
        return 0.0
    if family in ("arith", "math", "memory") and op.results and not name.startswith(("memory.l", "memory.s")):
        return _computed(op, warps, speeds)
    if family == "memory":
        return _moved(op, warps, speeds)
    return {"barrier": 4.0, "async_copy": 8.0, "mma": 8.0, "atomic": 8.0, "cluster": 8.0}.get(family, 2.0)


def _lanes(warps: int, speeds: Speeds) -> float:
    return min(warps * 32, 128) * speeds.lanes / 128


def _computed(op: OpBase, warps: int, speeds: Speeds) -> float:
    shape = shape_of(op.results[0].type)
    if not shape:
        return 2.0
    slower = speeds.lanes / speeds.special if op.spec.name in _SPECIAL else 1.0
    return math.prod(shape) * slower / _lanes(warps, speeds)


def _moved(op: OpBase, warps: int, speeds: Speeds) -> float:
    """Issuing loads and stores; loads' results come later."""
    v = op.results[0] if op.results else op.operands[1]
    size = math.prod(_shape(v)) * _bits(v) / 8
    where = "shared" if op.spec.name.startswith("memory.local") else "global"
    return max(2.0, size / speeds.rate[where])


def delay(op: OpBase, speeds: Speeds) -> float:
    """Cycles from an op's end until its results can be used."""
    name = op.spec.name
    if name == "memory.load" or name == "async_copy.block_load":
        return speeds.latency["global"]
    if name.startswith("memory.local_load") or name == "memory.local_gather":
        return speeds.latency["shared"]
    return speeds.latency["atomic"] if name.startswith("atomic.") else 0.0


__all__ = ["CP_ASYNC", "SPEEDS", "TENSOR_CORE", "TMA_LOAD", "TMA_STORE", "Speeds", "cost", "delay", "engine_of"]
