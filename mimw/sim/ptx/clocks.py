"""Vector clocks: what every warp of a batch knows of every agent, and how releases and acquires pass it on.

A warp's own clock advances with each release, sync and proxy fence. Warps keep four tables: by agent; by (agent, lane) what
of threads' writes was fenced for the async proxy; by (warp, lane) what single lanes have released; by warp how far it is
known to have come, which says nothing of memory: a wgmma whose end somebody has waited for was issued by all four warps.
What only some lanes of a warp have learned (an elected thread that waited) is kept apart until the warp syncs. Knows no memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.sim.ptx.agents import Agents
from mimw.sim.ptx.floats import Array

# By agent, by (agent, lane) for the async proxy, by (warp, lane), by warp how far it has come.
Clocks = tuple[Array, Array, Array, Array]
_SPARE = 32


def merge(a: Clocks | None, b: Clocks) -> Clocks:
    """Both sets of clocks joined (the older may know fewer agents)."""
    if a is None:
        return b
    short, long = (a, b) if len(a[0]) <= len(b[0]) else (b, a)
    own = long[0].copy()
    np.maximum(own[: len(short[0])], short[0], out=own[: len(short[0])])
    return own, np.maximum(a[1], b[1]), np.maximum(a[2], b[2]), np.maximum(a[3], b[3])


def bits_of_lanes(lanes: Array) -> int:
    """32 bools as an int."""
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")


class Clockwork:
    """The clocks of all warps of `clusters` clusters. `live` gives the lanes of a warp that have not exited."""

    def __init__(self, clusters: int, agents: Agents) -> None:
        self.agents = agents
        rows = clusters * agents.warps
        self.clock: Array = np.zeros((rows, agents.static + _SPARE), np.int32)
        self.async_clock: Array = np.zeros((rows, agents.static, 32), np.int32)
        # Of a warp's own lanes: what the warp's last sync covers. `fenced`: what each thread itself fenced.
        self.lane_clock: Array = np.zeros((rows, agents.warps, 32), np.int32)
        self.fenced: Array = np.zeros((rows, 32), np.int32)
        self.order: Array = np.zeros((rows, agents.warps), np.int32)
        # By warp: (lanes, what they alone have learned).
        self.private: dict[int, list[tuple[int, Clocks]]] = {}
        self.live: Callable[[int], Array] = lambda row: np.ones(32, np.bool_)
        self.clock[np.arange(rows), agents.warp(np.arange(rows))] = 1

    def room(self, agent: int) -> int:
        """Make sure that the clocks have a column for `agent`."""
        have = self.clock.shape[1]
        if agent >= have:
            self.clock = np.concatenate([self.clock, np.zeros((len(self.clock), have), np.int32)], axis=1)
        return agent

    def now(self, row: int) -> int:
        """The current epoch of a warp."""
        return int(self.clock[row, row % self.agents.warps])

    def nothing(self) -> Clocks:
        """Clocks that know of nothing."""
        tables = (self.clock[0], self.async_clock[0], self.lane_clock[0], self.order[0])
        return np.zeros_like(tables[0]), np.zeros_like(tables[1]), np.zeros_like(tables[2]), np.zeros_like(tables[3])

    def release(self, row: int, lanes: Array | None = None) -> Clocks:
        """The clocks that lanes (32 bools, None: all) of warp `row` publish; their later accesses are not covered by them."""
        clock, fenced, threads, order = (table.copy() for table in self._tables(row))
        own = row % self.agents.warps
        mine = -1 if lanes is None else bits_of_lanes(lanes)
        for holders, known in self.private.get(row, ()):
            if holders & mine:
                _raise((clock, fenced, threads, order), known)
        if lanes is None or not (self.live(row) & ~lanes).any():
            lanes = np.ones(32, np.bool_)
        else:
            clock[own] = int(threads[own].min())
        threads[own][lanes] = clock[own] if lanes.all() else self.clock[row, own]
        fenced[own][lanes] = np.maximum(fenced[own], self.fenced[row])[lanes]
        np.maximum(order, clock[: len(order)], out=order)
        order[own] = self.clock[row, own]  # a warp leaves its waits together
        self.clock[row, own] += 1
        return clock, fenced, threads, order

    def _tables(self, row: int) -> Clocks:
        """What warp `row` knows, as views."""
        return self.clock[row], self.async_clock[row], self.lane_clock[row], self.order[row]

    def come_together(self, rows: list[int]) -> Array:
        """These warps issue one instruction together: how far they, and those that they know of, have come."""
        out = np.zeros_like(self.order[0])
        for row in rows:
            np.maximum(out, self.order[row], out=out)
            np.maximum(out, self.clock[row, : len(out)], out=out)
            self.clock[row, row % self.agents.warps] += 1
        return out

    def passed(self, row: int, order: Array) -> None:
        """Warp `row` learns how far others have come."""
        np.maximum(self.order[row], order, out=self.order[row])

    def warp_sync(self, rows: Array, lanes: Array) -> None:
        """bar.warp.sync: these lanes ((rows, 32) bool) know what each of them did, fenced and learned."""
        for row, members in zip(rows.tolist(), lanes, strict=True):
            if row in self.private:
                self._share(row, bits_of_lanes(members))
        own = self.agents.warp(rows)
        now = self.clock[rows, own][:, None]
        self.lane_clock[rows, own] = np.where(lanes, now, self.lane_clock[rows, own])
        seen = self.async_clock[rows, own]
        self.async_clock[rows, own] = np.where(lanes, np.maximum(seen, self.fenced[rows]), seen)
        self.clock[rows, own] += 1

    def acquire(self, row: int, clocks: Clocks, lanes: Array | None = None) -> None:
        """Lanes (32 bools, None: all) of warp `row` learn published clocks."""
        if lanes is None or not (self.live(row) & ~lanes).any():
            _raise(self._tables(row), clocks)
            return
        holders, kept = bits_of_lanes(lanes), self.private.setdefault(row, [])
        for i, (others, known) in enumerate(kept):
            if others == holders:
                kept[i] = (holders, merge(known, clocks))
                return
        kept.append((holders, merge(self.nothing(), clocks)))

    def _share(self, row: int, members: int) -> None:
        """What some of these lanes know, all of them know."""
        live, kept = bits_of_lanes(self.live(row)), self.private.pop(row)
        for holders, known in kept:
            grown = holders | members if holders & members else holders
            if live & ~grown:
                self.private.setdefault(row, []).append((grown, known))
            else:
                _raise(self._tables(row), known)

    def known_by(self, rows: slice) -> Array:
        """What any lane of these warps knows of each agent."""
        out = self.clock[rows].max(axis=0)
        for row in range(rows.start, rows.stop):
            for _, known in self.private.get(row, ()):
                np.maximum(out[: len(known[0])], known[0], out=out[: len(known[0])])
        return out

    def lend(self, rows: Array, lanes: Array) -> list[tuple[int, Clocks]]:
        """Let threads use what their lanes alone know; gives what `take_back` needs."""
        saved: list[tuple[int, Clocks]] = []
        for row in self.private.keys() & set(rows.tolist()):
            using = sum({1 << lane for lane in lanes[rows == row].tolist()})
            own = self._tables(row)
            before = own[0].copy(), own[1].copy(), own[2].copy(), own[3].copy()
            for holders, known in self.private[row]:
                if not using & ~holders:
                    _raise(own, known)
            saved.append((row, before))
        return saved

    def take_back(self, saved: list[tuple[int, Clocks]]) -> None:
        """End a loan."""
        for row, before in saved:
            self.clock[row, : len(before[0])], self.async_clock[row], self.lane_clock[row], self.order[row] = before

    def fence_async(self, rows: Array, lanes: Array) -> None:
        """fence.proxy.async: what these threads (lanes: (rows, 32) bool) and their copiers wrote, the async proxy sees."""
        own = self.agents.warp(rows)
        copier = own + self.agents.warps + self.agents.engines
        self.fenced[rows] = np.where(lanes, self.clock[rows, own][:, None], self.fenced[rows])
        copied = self.clock[rows, copier][:, None]
        self.async_clock[rows, copier] = np.where(lanes, copied, self.async_clock[rows, copier])
        self.clock[rows, own] += 1

    def learn(self, row: int, agent: int, epoch: int, lanes: Array | None = None) -> None:
        """Lanes of warp `row` waited for epoch `epoch` of an agent: its copier, its group's engine, a thread's bulk groups."""
        known = self.nothing()
        known[0][agent] = epoch
        self.acquire(row, known, lanes)


def _raise(own: Clocks, known: Clocks) -> None:
    """Bring clocks up to others, in place (the others may know fewer agents)."""
    np.maximum(own[0][: len(known[0])], known[0], out=own[0][: len(known[0])])
    np.maximum(own[1], known[1], out=own[1])
    np.maximum(own[2], known[2], out=own[2])
    np.maximum(own[3], known[3], out=own[3])
