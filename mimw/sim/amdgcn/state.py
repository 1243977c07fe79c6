# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Registers of a batch of waves that stand side by side, and which of them may be read.

A vector register is a row (waves, 64), a scalar one a row (waves). Numbers of registers here run through all files: VGPRs
0 to 255, AGPRs 256 to 511, SGPRs and the named scalar registers 512 to 639. Every read checks that the register was
written before, lane by lane, and that no memory instruction still owns it. Knows no instruction.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from mimw.sim.amdgcn.decode import EXEC, Reg
from mimw.sim.amdgcn.errors import SimulationError

# NumPy's stubs lose the dtype at every view and where: an array is Any to the type checker.
Array: TypeAlias = Any

LANES = 64
SCALAR = 512
_FILES = {"v": 0, "a": 256, "s": SCALAR}
_TOTAL = SCALAR + 128


def slot_of(reg: Reg) -> int:
    """The number of a register's first part among all files."""
    return _FILES[reg.file] + reg.first


def name_of(slot: int) -> str:
    """The register of a number, as the text writes it."""
    if slot < 256:
        return f"v{slot}"
    if slot < SCALAR:
        return f"a{slot - 256}"
    number = slot - SCALAR
    special = {106: "vcc_lo", 107: "vcc_hi", 124: "m0", 126: "exec_lo", 127: "exec_hi", 102: "flat_scratch_lo",
               103: "flat_scratch_hi"}  # fmt: skip
    return special.get(number, f"s{number}")


class Ctx:
    """The waves that execute now: `waves` (rows), `sel` (the same as a slice where possible), `bits` (as a bit set), and
    `mask`, their EXEC as (n, 64) bool, None where every lane is on. Instructions that write EXEC change `mask`."""

    __slots__ = ("bits", "jump", "mask", "n", "sel", "waves")

    def __init__(self, waves: Array, mask: Array | None) -> None:
        self.waves = waves
        self.n = len(waves)
        first, last = int(waves[0]), int(waves[-1])
        self.sel: Any = slice(first, last + 1) if last - first + 1 == self.n else waves
        self.bits = ((1 << self.n) - 1) << first if isinstance(self.sel, slice) else sum(1 << w for w in waves.tolist())
        self.mask: Array | None = mask
        self.jump: Array | None = None

    def active(self) -> Array:
        """The lanes that are on, (n, 64) bool."""
        return np.ones((self.n, LANES), np.bool_) if self.mask is None else self.mask

    def full(self, value: Array) -> Array:
        """`value` (an array that broadcasts) at the shape (n, 64)."""
        return value if value.shape == (self.n, LANES) else np.broadcast_to(value, (self.n, LANES))


class Machine:
    """Registers of `groups` work-groups with `waves_per_group` waves each."""

    def __init__(self, groups: int, waves_per_group: int, group_names: list[tuple[int, int, int]]) -> None:
        self.groups, self.waves_per_group = groups, waves_per_group
        self.group_names = group_names
        self.waves = groups * waves_per_group
        self.group_of: Array = np.arange(self.waves) // waves_per_group
        self.vector: Array = np.zeros((512, self.waves, LANES), np.uint32)
        self.scalar: Array = np.zeros((128, self.waves), np.uint32)
        self.scc: Array = np.zeros(self.waves, np.bool_)
        self.exec: Array = np.zeros((self.waves, LANES), np.bool_)
        self.float_mode: Array = np.zeros(self.waves, np.uint32)
        everyone = (1 << self.waves) - 1
        # Waves that may not simply read a register: it is unwritten in some lane, or owned by a memory instruction.
        self.bad = [everyone] * _TOTAL
        self.init_lanes: Array = np.zeros((512, self.waves, LANES), np.bool_)
        self.unwritten = [everyone] * _TOTAL
        # Per register the memory instructions that still write it: (their entry, bit set of waves).
        self.pending: dict[int, list[tuple[Any, int]]] = {}

    def wave_name(self, wave: int) -> str:
        """A wave in words: its work-group and its index there."""
        x, y, z = self.group_names[wave // self.waves_per_group]
        return f"workgroup ({x},{y},{z}) wave {wave % self.waves_per_group}"

    # -- permission to read and write ----------------------------------------------------------------------------

    def pending_bits(self, slot: int) -> int:
        """The waves in which a memory instruction still owns the register."""
        found = self.pending.get(slot)
        bits = 0
        for _, waves in found or ():
            bits |= waves
        return bits

    def refresh(self, slot: int) -> None:
        """Recompute `bad` after a change of `pending` or `unwritten`."""
        self.bad[slot] = self.unwritten[slot] | self.pending_bits(slot)

    def check_read(self, x: Ctx, slot: int, lanes: Array | None) -> None:
        """Raise where register `slot` may not be read in `lanes` ((n, 64) bool, None for all) of the waves of `x`."""
        self._check_pending(x, slot, "read")
        if slot >= SCALAR:
            bad = self.unwritten[slot] & x.bits
            if bad:
                wave = (bad & -bad).bit_length() - 1
                raise SimulationError(
                    f"{name_of(slot)} is read before it is written", "uninitialised", where=self.wave_name(wave)
                )
            return
        missing = ~self.init_lanes[slot][x.sel]
        if lanes is not None:
            missing &= lanes
        if missing.any():
            row, lane = (int(v) for v in np.argwhere(missing)[0])
            where = f"{self.wave_name(int(x.waves[row]))} lane {lane}"
            raise SimulationError(f"{name_of(slot)} is read before it is written", "uninitialised", where=where)
        if lanes is None:
            self.unwritten[slot] &= ~x.bits
            self.refresh(slot)

    def _check_pending(self, x: Ctx, slot: int, verb: str) -> None:
        for entry, waves in self.pending.get(slot, ()):
            if waves & x.bits:
                wave = ((waves & x.bits) & -(waves & x.bits)).bit_length() - 1
                raise SimulationError(
                    f"{name_of(slot)} is {verb} before the {entry.what} that writes it is waited for"
                    f" (s_waitcnt {entry.counter})",
                    "wait",
                    where=self.wave_name(wave),
                )

    def note_write(self, x: Ctx, slot: int, lanes: Array | None) -> None:
        """Register `slot` is written in `lanes` of the waves of `x`: no memory instruction may still own it."""
        if slot in self.pending:
            self._check_pending(x, slot, "written")
        if slot < SCALAR and lanes is not None:
            self.init_lanes[slot][x.sel] |= lanes
            return
        if slot < SCALAR:
            self.init_lanes[slot][x.sel] = True
        self.unwritten[slot] &= ~x.bits
        self.refresh(slot)

    # -- vector registers ----------------------------------------------------------------------------------------

    def read_vector(self, x: Ctx, slot: int) -> Array:
        """(n, 64) uint32, checked in the lanes that are on; do not write to it."""
        if self.bad[slot] & x.bits:
            self.check_read(x, slot, x.mask)
        return self.vector[slot][x.sel]

    def read_all_lanes(self, x: Ctx, slot: int, count: int) -> Array:
        """(count, n, 64) uint32 of consecutive registers, checked in every lane: for what ignores EXEC."""
        for k in range(slot, slot + count):
            if self.bad[k] & x.bits:
                self.check_read(x, k, None)
        return self.vector[slot : slot + count, x.sel]

    def write_vector(self, x: Ctx, slot: int, value: Array) -> None:
        """Write (n, 64) uint32, or what broadcasts, in the lanes that are on."""
        if self.bad[slot] & x.bits:
            self.note_write(x, slot, x.mask)
        if x.mask is None:
            self.vector[slot][x.sel] = value
        elif isinstance(x.sel, slice):
            np.copyto(self.vector[slot][x.sel], value, where=x.mask, casting="unsafe")
        else:
            row = self.vector[slot]
            row[x.sel] = np.where(x.mask, value, row[x.sel])

    def write_all_lanes(self, x: Ctx, slot: int, values: Array) -> None:
        """Write (count, n, 64) uint32 to consecutive registers, whatever EXEC is."""
        for k in range(slot, slot + len(values)):
            if self.bad[k] & x.bits:
                self.note_write(x, k, None)
        self.vector[slot : slot + len(values), x.sel] = values

    # -- scalar registers ----------------------------------------------------------------------------------------

    def read_scalar(self, x: Ctx, number: int) -> Array:
        """(n,) uint32 of scalar register `number`, EXEC included."""
        if number in (EXEC, EXEC + 1):
            return self.exec_words(x)[:, number - EXEC]
        if self.bad[SCALAR + number] & x.bits:
            self.check_read(x, SCALAR + number, None)
        return self.scalar[number][x.sel]

    def write_scalar(self, x: Ctx, number: int, value: Array) -> None:
        """Write (n,) uint32, or what broadcasts, to scalar register `number`."""
        if number in (EXEC, EXEC + 1):
            words = self.exec_words(x).copy()
            words[:, number - EXEC] = value
            self.write_exec(x, unpack_mask(words))
            return
        if self.bad[SCALAR + number] & x.bits:
            self.note_write(x, SCALAR + number, None)
        self.scalar[number][x.sel] = value

    def exec_words(self, x: Ctx) -> Array:
        """EXEC as (n, 2) uint32."""
        return pack_mask(self.exec[x.sel])

    def write_exec(self, x: Ctx, mask: Array) -> None:
        """Write EXEC from (n, 64) bool."""
        self.exec[x.sel] = mask
        x.mask = None if mask.all() else mask

    def read_mask(self, x: Ctx, number: int) -> Array:
        """A pair of scalar registers as one bool a lane, (n, 64)."""
        if number == EXEC:
            return self.exec[x.sel]
        return unpack_mask(np.stack([self.read_scalar(x, number), self.read_scalar(x, number + 1)], axis=1))

    def write_mask(self, x: Ctx, number: int, mask: Array) -> None:
        """Write one bool a lane, (n, 64), to a pair of scalar registers."""
        if number == EXEC:
            self.write_exec(x, np.array(mask))
            return
        words = pack_mask(mask)
        self.write_scalar(x, number, words[:, 0])
        self.write_scalar(x, number + 1, words[:, 1])


def pack_mask(mask: Array) -> Array:
    """(n, 64) bool as (n, 2) uint32."""
    return np.packbits(mask, axis=1, bitorder="little").view(np.uint32)


def unpack_mask(words: Array) -> Array:
    """(n, 2) uint32 as (n, 64) bool."""
    raw = np.ascontiguousarray(words, np.uint32).view(np.uint8)
    return np.unpackbits(raw, axis=1, bitorder="little").view(np.bool_)
