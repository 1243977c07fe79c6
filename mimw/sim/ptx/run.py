# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Run an entry of a PTX text: parameters, memory, batches of CTAs, and the report.

    run_ptx(text, "add", (4, 1, 1), [x, y, out, 1000])

writes `out` in place. CTAs run in batches that stand side by side in the registers' arrays; all CTAs of a batch make
progress together, batches run one after the other.
"""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from collections.abc import Sequence

import numpy as np

from mimw.codegen.machine import FlatFunction, Imm, Inst, Reg, Symbol, Vec
from mimw.codegen.ptx.module import PtxModule, Variable
from mimw.codegen.ptx.parser import parse
from mimw.sim.ptx.agents import Agents
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.memory import SHARED_START, GlobalMemory, Memory
from mimw.sim.ptx.program import Program, flatten
from mimw.sim.ptx.sanitizer import Sanitizer
from mimw.sim.ptx.scheduler import Scheduler
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.specials import Dim, Geometry, cluster_shape, special_registers
from mimw.sim.ptx.state import CLOCK, DEAD, Machine, bits_of
from mimw.sim.ptx.tensor_map import decode, is_map

KernelArg = int | float | bytes | Array | tuple[Array, int]
_BATCH_WARPS = 256
_BATCH_BYTES = 256 << 20


class RunReport:
    """What a run did: group steps, warp instructions, how often each kind of fence ran (warps), and the lines it printed."""

    __slots__ = ("fences", "printed", "steps", "warp_instructions")

    def __init__(self) -> None:
        self.steps = 0
        self.warp_instructions = 0
        self.fences: Counter[str] = Counter()
        self.printed: list[str] = []

    def __repr__(self) -> str:
        return f"RunReport(steps={self.steps}, warp_instructions={self.warp_instructions}, fences={dict(self.fences)})"


def run_ptx(
    text: str | PtxModule,
    entry: str | None,
    grid: Dim,
    args: Sequence[KernelArg],
    *,
    block: Dim | None = None,
    shared_bytes: int = 0,
    cluster: Dim | None = None,
    seed: int = 0,
    max_steps: int = 5_000_000,
    check_races: bool = True,
    strict: bool = True,
    memory: GlobalMemory | None = None,
) -> RunReport:
    """Execute entry `entry` (None: the only one) of a PTX text over `grid` CTAs.

    `args` in the order of the entry's parameters: NumPy arrays for pointers (read and written in place; arrays that share
    memory share it here too), (array, byte offset) pairs, ints (also addresses from `memory.register`), floats, or bytes for
    structs and tensor maps (`tensor_map.encode`). `block` defaults to the text's `.reqntid`, `cluster` to its
    `.reqnctapercluster`. `shared_bytes` is the dynamic shared memory. `seed` other than 0 picks another interleaving of
    the warps and of the copies in flight. Without `strict` a text may do what the ISA leaves open and devices bear, as other
    compilers' texts do: use registers that were never written where the result does not matter (they hold arbitrary bits), give
    parities other than 0 and 1 to waits (the low bit counts), put data over an mbarrier that was initialised and never used.
    Raises `SimulationError` for a fault of the program and for what the simulator does not know yet; `PtxSyntaxError` for
    text that does not parse.
    """
    module = parse(text) if isinstance(text, str) else text
    fn = module.entry(entry)
    geometry = Geometry(grid, _block_shape(fn, block), cluster_shape(fn, cluster, grid))
    launch = _Launch(module, fn, geometry, shared_bytes, memory or GlobalMemory(), check_races)
    launch.strict = strict
    launch.pass_arguments(args)
    report = RunReport()
    with np.errstate(all="ignore"):
        launch.run(report, seed, max_steps)
    return report


def _block_shape(fn: FlatFunction, block: Dim | None) -> Dim:
    required = fn.directives.get("reqntid")
    if required is not None:
        required = (*required, 1, 1)[:3]
        if block is not None and tuple(block) != required:
            raise SimulationError(f"{fn.name} needs blocks of {required}, not {tuple(block)}")
        block = (required[0], required[1], required[2])
    if block is None:
        raise SimulationError(f"{fn.name} has no .reqntid: say the block's shape")
    if not 1 <= block[0] * block[1] * block[2] <= 1024:
        raise SimulationError(f"a block of {block} threads")
    return block


def host_memory(data: bytes) -> Array:
    """The host memory that a tensor map made from an array covers, as bytes."""
    low, high = decode(data).span()
    return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))


class _Launch:
    def __init__(
        self, module: PtxModule, fn: FlatFunction, geometry: Geometry, dynamic: int, world: GlobalMemory, races: bool
    ) -> None:
        self.fn, self.geometry, self.world, self.dynamic = fn, geometry, world, dynamic
        self.symbols: dict[str, int] = {}
        self.shared_symbols: set[str] = set()
        self.params: dict[str, bytes] = {}
        self.races = races
        self.strict = True
        self.local_bytes = 0
        self.clock: Array = np.ones((1, 1), np.uint64)
        self._variables(module)

    # -- symbols and arguments -----------------------------------------------------------------------------------

    def _variables(self, module: PtxModule) -> None:
        """Addresses of variables: static shared first, then the dynamic array; global and const ones get allocations."""
        at = SHARED_START
        shared = [(v.name, v.align, v.size, v.linkage) for v in module.variables if v.space == "shared"]
        shared += [(name, align, size, "") for name, align, size in self.fn.shared]
        used = _mentioned(self.fn)
        for name, align, size, linkage in sorted(shared, key=lambda v: v[3] == "extern"):
            if name not in used and linkage != "extern":
                continue
            at = -(-at // max(align, 1)) * max(align, 1)
            self.symbols[name] = at
            self.shared_symbols.add(name)
            at += size
        self.static_end = at
        for name, align, size in self.fn.local:
            self.local_bytes = -(-self.local_bytes // max(align, 1)) * max(align, 1)
            self.symbols[name] = self.local_bytes
            self.local_bytes += size
        placed = [(v, self.world.allocate(np.zeros(max(v.size, 1), np.uint8), f"{v.space} variable {v.name}"))
                  for v in module.variables if v.space in ("global", "const")]  # fmt: skip
        for variable, region in placed:
            self.symbols[variable.name] = region.base
        for variable, region in placed:
            data = b"".join(self._element(variable, item) for item in variable.init or [])
            region.data[: len(data)] = np.frombuffer(data, np.uint8)
            region.writable = variable.space == "global"

    def _element(self, variable: Variable, item: Imm | Symbol) -> bytes:
        size = bits_of(variable.cls) // 8
        if isinstance(item, Symbol):
            name = item.name.removeprefix("generic(").removesuffix(")")
            return self.symbols[name].to_bytes(size, "little")
        value = item.value
        if item.cls == "f64" and variable.cls == "f32":
            return struct.pack("<f", struct.unpack("<d", value.to_bytes(8, "little"))[0])
        return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def pass_arguments(self, args: Sequence[KernelArg]) -> None:
        """Encode the arguments as parameter bytes and give arrays their addresses."""
        if len(args) != len(self.fn.params):
            raise SimulationError(f"{self.fn.name} takes {len(self.fn.params)} arguments, {len(args)} were given")
        arrays = [arg[0] if isinstance(arg, tuple) else arg for arg in args if isinstance(arg, (np.ndarray, tuple))]
        mapped = [host_memory(arg) for arg in args if isinstance(arg, bytes) and is_map(arg) and decode(arg).host]
        addresses = iter(self.world.register([*arrays, *mapped]))
        block = bytearray()
        places: list[tuple[str, int]] = []
        for arg, (cls, name, size, align) in zip(args, self.fn.params, strict=False):
            value: int | float | bytes
            if isinstance(arg, tuple):
                value = next(addresses) + arg[1]
            elif isinstance(arg, np.ndarray):
                value = next(addresses)
            elif isinstance(arg, bytes) and is_map(arg):
                value = self._on_device(arg)
            else:
                value = arg
            data = _encode(value, cls, size, name)
            self.params[name] = data
            block += bytes(-len(block) % max(align, 1))
            places.append((name, len(block)))
            block += data
        region = self.world.allocate(np.frombuffer(bytes(block) or b"\0", np.uint8), "the parameters", writable=False)
        for name, offset in places:
            self.symbols[name] = region.base + offset

    def _on_device(self, data: bytes) -> bytes:
        """A tensor map with its address in the simulator's global memory."""
        found = decode(data)
        if found.host:
            found.address, found.host = self.world.device_address(found.address), False
        return found.pack()

    # -- execution -----------------------------------------------------------------------------------------------

    def run(self, report: RunReport, seed: int, max_steps: int) -> None:
        """Run all CTAs, batch by batch."""
        total, threads, cluster = self.geometry.ctas, self.geometry.threads, self.geometry.cluster_size
        granule = _granule(self.fn)
        size = min(max(total, 1), max(1, self._batch_size(threads, granule) // cluster) * cluster)
        for first in range(0, total, size):
            count = min(size, total - first)
            s = self._prepare(count, first, threads, granule)
            s.strict = self.strict
            if not self.strict:
                s.m.fill_registers(seed + first)
            scheduler = Scheduler(s, Program(s), seed, max_steps)
            scheduler.run()
            self.clock = s.m.specials[CLOCK]
            report.steps += scheduler.steps
            report.warp_instructions += scheduler.warp_instructions
            report.fences += s.fences
            report.printed += "".join(s.output).splitlines()

    def _batch_size(self, threads: int, granule: int) -> int:
        warps = (threads + 31) // 32
        registers = sum(max(bits_of(reg.cls) // 8, 1) + 1 for reg in self.fn.regs) * 32 * warps
        shared = self.static_end - SHARED_START + self.dynamic
        history = shared // granule * (12 + 10 * warps * self.geometry.cluster_size) if self.races else 0
        return max(1, min(_BATCH_WARPS // warps, _BATCH_BYTES // max(registers + history + shared, 1)))

    def _prepare(self, ctas: int, first: int, threads: int, granule: int) -> Sim:
        m = Machine(self.fn, ctas, threads, self.geometry.cluster_size)
        m.symbols, m.shared_symbols = self.symbols, self.shared_symbols
        m.specials = special_registers(m, self.geometry, first, self.static_end - SHARED_START, self.dynamic)
        m.specials[CLOCK] = self.clock
        mem = Memory(m, self.world, self.static_end - SHARED_START + self.dynamic, self.local_bytes)
        san = None
        if self.races and mem.shared_end > SHARED_START:
            san = Sanitizer(ctas // m.cluster, Agents(m.cluster, m.warps_per_cta), mem.stride, granule)
            san.warp_name = m.warp_name
        s = Sim(m, mem, self.world, san)
        s.params = self.params
        flatten(s)
        if san is not None:
            san.insts = s.insts
            san.live = lambda row: s.pcs[row] < DEAD
        for inst in s.insts:
            if inst.opcode.startswith("wgmma.mma_async"):
                m.tracked.update(m.slot(reg)[1] for op in inst.operands[:2] for reg in _registers(op))
        if threads % 32:
            s.pcs[m.warps_per_cta - 1 :: m.warps_per_cta, threads % 32 :] = 1 << 30
        return s


def _registers(op: object) -> list[Reg]:
    return [item for item in op.items if isinstance(item, Reg)] if isinstance(op, Vec) else []


def _mentioned(fn: FlatFunction) -> set[str]:
    """Names of symbols that the entry's instructions use."""
    found: set[str] = set()
    for item in fn.body:
        if isinstance(item, Inst):
            for op in item.operands:
                base = getattr(op, "base", op)
                if isinstance(base, Symbol):
                    found.add(base.name)
    return found


def _granule(fn: FlatFunction) -> int:
    """The narrowest shared access of the program in bytes, 16 at most."""
    width = 16
    for item in fn.body:
        if not isinstance(item, Inst):
            continue
        root, *mods = item.opcode.split(".")
        if root in ("ld", "st", "atom", "red") and not {"global", "param", "const", "local"} & set(mods):
            width = min(width, bits_of(mods[-1]) // 8)
        elif root == "cp" and mods[1:2] and mods[1] in ("ca", "cg") and isinstance(item.operands[2], Imm):
            width = min(width, item.operands[2].value)
    return width


def _encode(value: int | float | bytes, cls: str, size: int, name: str) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        if len(value) != size:
            raise SimulationError(f"parameter {name} has {size} bytes, {len(value)} were given")
        return bytes(value)
    if cls in ("f32", "f64", "f16"):
        return struct.pack({"f32": "<f", "f64": "<d", "f16": "<e"}[cls], value)
    if isinstance(value, float):
        raise SimulationError(f"parameter {name} is .{cls}, a float was given")
    value = int(value)
    if not -(1 << 8 * size - 1) <= value < 1 << 8 * size:
        raise SimulationError(f"{value} does not fit parameter {name} (.{cls})")
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
