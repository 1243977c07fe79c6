# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false
"""Run a kernel of a code object or of assembly text: arguments, memory, batches of work-groups, and the report.

    run(hsaco, "add", (4, 1, 1), (256, 1, 1), [x, y, out, 1000])

writes `out` in place. Work-groups run in batches that stand side by side in the registers' arrays; all of a batch make
progress together, batches run one after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

import mimw.sim.amdgcn.ops as _families  # noqa: F401  # pyright: ignore[reportUnusedImport]  (fills the registry)
from mimw.sim.amdgcn.code_object import from_code_object
from mimw.sim.amdgcn.decode import VCC, DecodeError, Inst, Reg
from mimw.sim.amdgcn.errors import SimulationError, not_yet
from mimw.sim.amdgcn.hazards import Site, check_hazards
from mimw.sim.amdgcn.lds import Lds
from mimw.sim.amdgcn.memory import Memory
from mimw.sim.amdgcn.operands import Operands
from mimw.sim.amdgcn.program import KernelInfo, Program, parse_text
from mimw.sim.amdgcn.registry import Step, find
from mimw.sim.amdgcn.scheduler import Scheduler
from mimw.sim.amdgcn.sim import Sim
from mimw.sim.amdgcn.state import LANES, Array, Ctx, Machine
from mimw.sim.amdgcn.waits import Waits
from mimw.sim.ptx.memory import GlobalMemory

Dim = tuple[int, int, int]
KernelArg = int | float | bytes | Array | tuple[Array, int]
_BATCH_WAVES = 256
_BATCH_BYTES = 128 << 20
_LARGEST_LDS = {"gfx942": 64 << 10, "gfx950": 160 << 10}


class RunReport:
    """What a run did: group steps, and waves times instructions."""

    __slots__ = ("steps", "wave_instructions")

    def __init__(self) -> None:
        self.steps = 0
        self.wave_instructions = 0

    def __repr__(self) -> str:
        return f"RunReport(steps={self.steps}, wave_instructions={self.wave_instructions})"


def run(
    code: bytes | str | Program,
    kernel: str | None,
    grid: Dim,
    block: Dim,
    args: bytes | Sequence[KernelArg],
    *,
    shared_bytes: int = 0,
    memory: GlobalMemory | None = None,
    check: bool = True,
    seed: int = 0,
    max_steps: int = 5_000_000,
    arch: str | None = None,
) -> RunReport:
    """Execute `kernel` (None: the only one) of a code object (bytes), a text or a `Program` over `grid` work-groups.

    `args`: the kernarg segment as bytes (with addresses from `memory.register`), or the arguments in order: NumPy arrays
    for pointers (read and written in place), (array, byte offset) pairs, ints, floats, bytes. Ints and floats take the
    size that the metadata says, else 4 bytes. `block` is in work-items. `shared_bytes` is LDS beyond what the kernel
    declares. `check` turns on waits, races, hazards and uninitialised registers; `seed` other than 0 picks another
    interleaving of the waves. Raises `SimulationError` for a fault of the program.
    """
    program = load_program(code, arch)
    info = program.kernel(kernel)
    if not 1 <= block[0] * block[1] * block[2] <= 1024:
        raise SimulationError(f"a work-group of {block} work-items")
    lds_bytes = info.lds + shared_bytes
    if lds_bytes > _LARGEST_LDS.get(program.arch, 64 << 10):
        raise SimulationError(f"{lds_bytes} bytes of LDS: {program.arch} has {_LARGEST_LDS[program.arch]}")
    launch = _Launch(program, info, grid, block, lds_bytes, memory or GlobalMemory(), check)
    launch.pass_arguments(args)
    report = RunReport()
    with np.errstate(all="ignore"):
        launch.run(report, seed, max_steps)
    return report


def load_program(code: bytes | str | Program, arch: str | None = None) -> Program:
    """A program from a code object, from assembly text, or itself."""
    if isinstance(code, Program):
        return code
    try:
        return parse_text(code, arch) if isinstance(code, str) else from_code_object(code)
    except DecodeError as error:
        raise SimulationError(str(error), "unsupported") from None


class _Launch:
    def __init__(
        self, program: Program, info: KernelInfo, grid: Dim, block: Dim, lds: int, world: GlobalMemory, check: bool
    ) -> None:
        self.program, self.info, self.grid, self.block = program, info, grid, block
        self.lds_bytes, self.world, self.check = lds, world, check
        self.kernarg, self.kernarg_bytes = 0, b""
        self.clock = 0
        self.waves = -(-block[0] * block[1] * block[2] // LANES)

    # -- arguments -----------------------------------------------------------------------------------------------

    def pass_arguments(self, args: bytes | Sequence[KernelArg]) -> None:
        """Put the kernarg segment into memory and give arrays their addresses."""
        data = args if isinstance(args, (bytes, bytearray)) else self._packed(args)
        size = max(self.info.kernarg_size, len(data), 4)
        padded = bytes(data) + bytes(-(-size // 64) * 64 - len(data))
        region = self.world.allocate(np.frombuffer(padded, np.uint8), "the kernel's arguments", writable=False)
        self.kernarg, self.kernarg_bytes = region.base, padded

    def _packed(self, args: Sequence[KernelArg]) -> bytes:
        arrays = [a[0] if isinstance(a, tuple) else a for a in args if isinstance(a, (np.ndarray, tuple))]
        addresses = iter(self.world.register(arrays))
        layout = self.info.args
        explicit = [a for a in layout if not a.kind.startswith("hidden")]
        if layout and len(args) > len(explicit):
            raise SimulationError(f"{self.info.name} takes {len(explicit)} arguments, {len(args)} were given")
        out = bytearray(self.info.kernarg_size)
        at = 0
        for i, arg in enumerate(args):
            size = explicit[i].size if layout else None
            if isinstance(arg, tuple):
                value: KernelArg = next(addresses) + arg[1]
                size = size or 8
            elif isinstance(arg, np.ndarray):
                value, size = next(addresses), size or 8
            else:
                value = arg
            raw = _encode(value, size)
            at = explicit[i].offset if layout else -(-at // len(raw)) * len(raw)
            out[at : at + len(raw)] = raw
            at += len(raw)
        for arg in layout:
            if arg.kind.startswith("hidden_block_count_"):
                size = self.grid["xyz".index(arg.kind[-1])]
                out[arg.offset : arg.offset + arg.size] = size.to_bytes(arg.size, "little")
        return bytes(out)

    # -- execution -----------------------------------------------------------------------------------------------

    def run(self, report: RunReport, seed: int, max_steps: int) -> None:
        """Run all work-groups, batch by batch."""
        gx, gy, gz = self.grid
        total = gx * gy * gz
        size = self._batch_size()
        for first in range(0, total, size):
            ids = [(i % gx, i // gx % gy, i // (gx * gy)) for i in range(first, min(total, first + size))]
            sim = self._prepare(ids)
            steps, sites = compile_steps(sim, self.info.entry)
            if self.check and not first:
                check_hazards(self.program, sites)
            scheduler = Scheduler(sim, steps, self.info.entry, seed, max_steps)
            scheduler.run()
            self.clock = sim.idle_time + sim.time
            report.steps += scheduler.steps
            report.wave_instructions += scheduler.wave_instructions

    def _batch_size(self) -> int:
        """Work-groups that run side by side: bounded by waves, and by the bytes of LDS and of its history."""
        history = (12 + 8 * self.waves) // _granule(self.program.insts) if self.check else 0
        return max(1, min(_BATCH_WAVES // self.waves, _BATCH_BYTES // max(self.lds_bytes * (1 + history), 1)))

    def _prepare(self, ids: list[Dim]) -> Sim:
        m = Machine(len(ids), self.waves, ids)
        sim = Sim(self.program, self.info, m)
        sim.lds = Lds(m, self.lds_bytes, _granule(self.program.insts), self.check)
        sim.waits = Waits(m, sim.lds)
        sim.idle_time = self.clock
        sim.memory = Memory(m, self.world, self.info.scratch)
        m.float_mode[:] = self.info.float_mode
        sim.flushes = self.info.float_mode & 0xF0 != 0xF0
        if self.info.float_mode & 15:
            raise not_yet("a rounding mode other than to nearest even")
        if not self.check:
            m.bad[:] = [0] * len(m.bad)
            m.unwritten[:] = [0] * len(m.unwritten)
        self._start(m, ids)
        return sim

    def _start(self, m: Machine, ids: list[Dim]) -> None:
        """The registers that the hardware sets up (LLVM's AMDGPU guide, "Initial kernel execution state")."""
        everyone = Ctx(np.arange(m.waves), None)
        bx, by, bz = self.block
        thread = (np.arange(m.waves) % self.waves)[:, None] * LANES + np.arange(LANES)
        packed = thread % bx
        if self.info.workitem_dims > 1:
            packed = packed | thread // bx % by << 10
        if self.info.workitem_dims > 2:
            packed = packed | thread // (bx * by) << 20
        m.write_vector(everyone, 0, packed.astype(np.uint32))
        m.write_exec(everyone, thread < bx * by * bz)
        at = self._user_registers(m, everyone)
        for dim, enabled in enumerate(self.info.workgroup_ids):
            if enabled:
                value = np.repeat(np.array([i[dim] for i in ids], np.uint32), self.waves)
                m.write_scalar(everyone, at, value)
                at += 1
        if self.info.workgroup_info:
            m.write_scalar(everyone, at, np.uint32(0))
        m.write_scalar(everyone, 124, np.uint32(0xFFFFFFFF))

    def _user_registers(self, m: Machine, x: Ctx) -> int:
        """User registers in their order; the first register after them."""
        at = 0
        for name, count in self.info.user_layout:
            if name == "kernarg_segment_ptr":
                m.write_scalar(x, at, np.uint32(self.kernarg & 0xFFFFFFFF))
                m.write_scalar(x, at + 1, np.uint32(self.kernarg >> 32))
            elif name == "dispatch_ptr":
                packet = self._dispatch_packet()
                m.write_scalar(x, at, np.uint32(packet & 0xFFFFFFFF))
                m.write_scalar(x, at + 1, np.uint32(packet >> 32))
            elif name == "private_segment_size":
                m.write_scalar(x, at, np.uint32(self.info.scratch))
            at += count
        for k in range(self.info.preload):
            word = self.kernarg_bytes[4 * k : 4 * k + 4].ljust(4, b"\0")
            m.write_scalar(x, at + k, np.uint32(int.from_bytes(word, "little")))
        return max(self.info.user_sgprs, at)

    def _dispatch_packet(self) -> int:
        """An HSA dispatch packet with the launch's sizes; its address."""
        bx, by, bz = self.block
        data = struct.pack("<HHHHHHIIIII", 0, 3, bx, by, bz, 0, *(g * b for g, b in zip(self.grid, self.block, strict=True)),
                           self.info.scratch, self.lds_bytes)  # fmt: skip
        data = data.ljust(64, b"\0")
        return self.world.allocate(np.frombuffer(data, np.uint8), "the dispatch packet", writable=False).base


def compile_steps(sim: Sim, entry: int) -> tuple[list[Step], dict[int, Site]]:
    """A step for every instruction that can be reached, and what each reads and writes; the others raise (data, padding)."""
    reachable = reached(sim.program, entry)
    steps: list[Step] = []
    sites: dict[int, Site] = {}
    for i, inst in enumerate(sim.program.insts):
        if i in reachable:
            operands = Operands(sim, inst)
            steps.append(_step(sim, i, operands))
            _within_grant(sim, operands)
            sites[i] = Site(inst, operands.reads, operands.writes, sim.arch)
        else:
            steps.append(_unreached(inst))
    return steps, sites


def _step(sim: Sim, index: int, operands: Operands) -> Step:
    inst = operands.inst
    decoder = find(inst.mnemonic)
    if decoder is None:
        error = not_yet(f"instruction {inst.mnemonic}")
        error.inst = inst
        raise error
    sim.index = index
    try:
        return decoder(operands)
    except DecodeError as error:
        raise SimulationError(str(error), "unsupported", inst) from None
    except SimulationError as error:
        error.inst = error.inst or inst
        raise


def _within_grant(sim: Sim, operands: Operands) -> None:
    """A register beyond those that the kernel's descriptor asks for is another wave's."""
    for op in operands.inst.operands:
        if isinstance(op, Reg) and (op.file != "s" or op.first < VCC - 4):
            granted = sim.info.granted.get(op.file)
            if granted is not None and op.first + op.count > granted:
                raise operands.fault(f"{op!r} is beyond the {granted} registers of its kind that the kernel asks for")


def _unreached(inst: Inst) -> Step:
    def run(x: Ctx) -> None:
        raise SimulationError("execution came to where no branch leads", "program", inst)

    return run


def reached(program: Program, entry: int) -> set[int]:
    """The indices that execution can come to from the entry; everything where a jump through a register is seen."""
    seen: set[int] = set()
    todo = [entry]
    while todo:
        i = todo.pop()
        if i in seen or i >= len(program.insts):
            continue
        seen.add(i)
        name = program.insts[i].mnemonic
        if name in ("s_setpc_b64", "s_swappc_b64"):
            return set(range(len(program.insts)))
        if program.is_branch(i):
            todo.append(_target(program, i))
        if name not in ("s_endpgm", "s_branch"):
            todo.append(i + 1)
    return seen


def _target(program: Program, index: int) -> int:
    try:
        return program.target(index)
    except DecodeError as error:
        raise SimulationError(str(error), "unsupported", program.insts[index]) from None


def _granule(insts: list[Inst]) -> int:
    """The narrowest LDS access of the program in bytes, 4 at most."""
    width = 4
    for inst in insts:
        if inst.mnemonic.startswith(("ds_read", "ds_write")):
            if "8" in inst.mnemonic.split("_")[2] and "128" not in inst.mnemonic:
                return 1
            if "16" in inst.mnemonic.split("_")[2]:
                width = 2
    return width


def _encode(value: KernelArg, size: int | None) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, float):
        return struct.pack("<d" if size == 8 else "<e" if size == 2 else "<f", value)
    if not isinstance(value, int):
        raise SimulationError(f"an argument of type {type(value).__name__}")
    size = size or 4
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
