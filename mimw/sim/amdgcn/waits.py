# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
"""Memory instructions in flight: which counter each raises, and what an s_waitcnt completes.

Rules (ISA section "Data dependency resolution"): vmcnt counts vector memory instructions, which complete in order; lgkmcnt
counts LDS instructions (in order among themselves), scalar memory reads and messages (in any order: only a wait for 0
completes them); flat instructions raise both and complete in any order. A register that an instruction in flight writes
may be neither read nor written, except by a later load of the same in-order kind. Values are already there: only the
permission to look is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from mimw.sim.amdgcn.decode import Inst
from mimw.sim.amdgcn.errors import SimulationError
from mimw.sim.amdgcn.state import Ctx, Machine, name_of

if TYPE_CHECKING:
    from mimw.sim.amdgcn.lds import Lds

_COUNTER = {"vm": "vmcnt", "lds": "lgkmcnt", "smem": "lgkmcnt(0)", "flat": "vmcnt(0) lgkmcnt(0)"}
_IN_ORDER = frozenset(["vm", "lds"])


class Entry:
    """One memory instruction in flight: `kind` vm, lds, smem or flat; the registers that it writes; the time it began;
    whether it writes LDS by DMA."""

    __slots__ = ("counter", "dma", "kind", "slots", "stamp", "what")

    def __init__(self, kind: str, inst: Inst, slots: tuple[int, ...], stamp: int, dma: bool) -> None:
        self.kind, self.what, self.slots, self.stamp, self.dma = kind, inst.mnemonic, slots, stamp, dma
        self.counter = _COUNTER[kind]


Queue: TypeAlias = tuple[Entry, ...]


class Waits:
    """The queues of all waves; waves that ran alike share one tuple, so that a wait is worked out once for them."""

    def __init__(self, m: Machine, lds: Lds) -> None:
        self.m, self.lds = m, lds
        self.vm: list[Queue] = [()] * m.waves
        self.lgkm: list[Queue] = [()] * m.waves

    def claim(self, x: Ctx, kind: str, slots: tuple[int, ...]) -> None:
        """A load is about to write `slots`: raise where another kind of instruction in flight still owns one."""
        m = self.m
        for slot in slots:
            held = m.pending.get(slot)
            if not held:
                continue
            for entry, waves in held:
                if waves & x.bits and not (entry.kind == kind and kind in _IN_ORDER):
                    wave = ((waves & x.bits) & -(waves & x.bits)).bit_length() - 1
                    raise SimulationError(
                        f"{name_of(slot)} is loaded while the {entry.what} that writes it is in flight"
                        f" (s_waitcnt {entry.counter})",
                        "wait",
                        where=m.wave_name(wave),
                    )
            self._drop(slot, None, x.bits)
            m.refresh(slot)

    def issue(self, x: Ctx, kind: str, inst: Inst, slots: tuple[int, ...], stamp: int, dma: bool = False) -> None:
        """An instruction begins; it owns `slots` until it is waited for."""
        entry = Entry(kind, inst, slots, stamp, dma)
        if kind in ("vm", "flat"):
            _append(self.vm, x, entry)
        if kind != "vm":
            _append(self.lgkm, x, entry)
        m = self.m
        for slot in slots:
            m.pending.setdefault(slot, []).append((entry, x.bits))
            m.bad[slot] |= x.bits

    def wait(self, x: Ctx, vm: int | None, lgkm: int | None) -> None:
        """s_waitcnt: complete what must be complete when the counters are at most `vm` and `lgkm` (None: no limit)."""
        if vm is not None:
            self._wait(x, self.vm, vm, "vm")
        if lgkm is not None:
            self._wait(x, self.lgkm, lgkm, "lds")

    def _wait(self, x: Ctx, queues: list[Queue], limit: int, ordered: str) -> None:
        groups: dict[int, tuple[Queue, list[int]]] = {}
        everyone: list[int] = x.waves.tolist()
        for wave in everyone:
            queue = queues[wave]
            if queue:
                groups.setdefault(id(queue), (queue, []))[1].append(wave)
        for queue, waves in groups.values():
            kept = _kept(queue, limit, ordered)
            if len(kept) == len(queue):
                continue
            for wave in waves:
                queues[wave] = kept
            bits = sum(1 << w for w in waves)
            for entry in queue:
                if entry not in kept:
                    self._complete(entry, bits if entry.kind != "flat" else self._on_no_queue(entry, waves))
            self._tell_lds(kept, waves, ordered)

    def _on_no_queue(self, entry: Entry, waves: list[int]) -> int:
        """The waves that wait for a flat instruction on neither counter any more."""
        return sum(1 << w for w in waves if entry not in self.vm[w] and entry not in self.lgkm[w])

    def _complete(self, entry: Entry, bits: int) -> None:
        for slot in entry.slots:
            self._drop(slot, entry, bits)
            self.m.refresh(slot)

    def _drop(self, slot: int, entry: Entry | None, bits: int) -> None:
        """Take the waves of `bits` from the owners of a register (from `entry` alone if given)."""
        held = self.m.pending.get(slot)
        if held is None:
            return
        left = [(e, w if entry is not None and e is not entry else w & ~bits) for e, w in held]
        left = [(e, w) for e, w in left if w]
        if left:
            self.m.pending[slot] = left
        else:
            del self.m.pending[slot]

    def _tell_lds(self, kept: Queue, waves: list[int], ordered: str) -> None:
        """Which of the waves' own LDS accesses are known to be done: those before the oldest one in flight."""
        dma = ordered == "vm"
        stamps = [e.stamp for e in kept if (e.dma if dma else e.kind in ("lds", "flat"))]
        self.lds.completed(waves, min(stamps) - 1 if stamps else None, dma)


def _append(queues: list[Queue], x: Ctx, entry: Entry) -> None:
    made: dict[int, Queue] = {}
    everyone: list[int] = x.waves.tolist()
    for wave in everyone:
        queue = queues[wave]
        new = made.get(id(queue))
        if new is None:
            new = made[id(queue)] = (*queue, entry)
        queues[wave] = new


def _kept(queue: Queue, limit: int, ordered: str) -> Queue:
    """What may still be in flight when the counter is at most `limit`."""
    if limit == 0:
        return ()
    in_order = [e for e in queue if e.kind == ordered]
    late = set(map(id, in_order[-limit:]))
    return tuple(e for e in queue if e.kind != ordered or id(e) in late)
