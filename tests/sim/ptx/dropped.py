"""Texts of mimw's own kernels with one synchronisation left out, and when that is bound to have no effect.

A `Case` is a kernel with the launches in which each of its syncs matters. Works on the lines of the text; knows nothing of the compiler.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest

from mimw.compiler import StageTimes, compile_module
from mimw.ir.core import Module
from mimw.ir.rewriter import clone_function
from mimw.sim.errors import SimulationError
from mimw.sim.ptx.sanitizer import Sanitizer
from tests.protocol.mutants import TARGET, Launch

SYNCS = re.compile(
    r"\s*(@!?%\w+\s+)?(fence\.proxy\.async\S*|fence\.mbarrier_init\S*|bar\.sync|bar\.warp\.sync|barrier\.cluster\S*"
    r"|wgmma\.(fence|wait_group)\S*|cp\.async\.wait_(group|all))[ ;]"
)
# What touches shared memory, meets other warps, or waits for somebody.
_ACTS = re.compile(
    r"\s*(@!?%\w+\s+)?((ld|st|red|atom)\.(async\.)?shared|ldmatrix|stmatrix|mbarrier|bar\.|barrier\.|wgmma\.|cp\.|st\.async|fence\.)"
)


class Case:
    """A compiled kernel, its lines, and launches with what they leave in memory."""

    def __init__(self, *entries: Callable[[], Any]) -> None:
        self.launches = [Launch(entry) for entry in entries]
        module = self.launches[0].module
        self.kernel = compile_module(Module(clone_function(module.function)), TARGET, {}, StageTimes())
        text = self.kernel.asm["ptx"]
        assert isinstance(text, str)
        self.lines = text.splitlines()
        self.left: list[list[bytes]] = []
        for launch in self.launches:
            launch.in_ptx(text, self.kernel, 0)
            self.left.append([a.tobytes() for a in launch.arrays])

    def syncs(self) -> list[int]:
        """The lines that synchronise."""
        return [i for i, line in enumerate(self.lines) if SYNCS.match(line)]

    def noticed(self, dropped: tuple[int, ...], seeds: int) -> bool:
        """Whether the simulator says anything of the text without these lines, or a launch gives another result."""
        text = "\n".join(line for i, line in enumerate(self.lines) if i not in dropped)
        for seed in range(seeds):
            for launch, left in zip(self.launches, self.left, strict=True):
                try:
                    launch.in_ptx(text, self.kernel, seed)
                except SimulationError:
                    return True
                if [a.tobytes() for a in launch.arrays] != left:
                    return True
        return False

    def without_effect(self, i: int, others: list[int], seeds: int) -> str:
        """Why nothing hangs on the sync of line `i`, empty when something does; `others`: syncs that can be left out, too."""
        before, after, barrier = self._before(i), self._after(i), "bar" in self.lines[i]
        data = {line for line in before if not re.match(r"@%leader_\d+ mbarrier\.arrive", line)}
        if barrier and data and data <= {"wgmma.wait_group.sync.aligned 0;", ""}:
            return "the warp group has waited for its products: all four warps have issued them, hence passed every wait before"
        if "bar.warp.sync" in self.lines[i] and all("mbarrier.try_wait" in line for line in before):
            return "a warp leaves its waits together"
        if barrier and all(re.match(r"bar\.sync|barrier\.cluster\.wait", line) for line in before):
            return "nothing happened since the warps met last"
        if barrier and after.startswith("bar.sync"):
            return "the warps meet again before anything happens"
        if not after and "fence" not in self.lines[i]:
            return "nothing touches shared memory any more"
        leader = re.match(r"@%leader_\d+ ", after)
        if barrier and leader and self._only(leader[0], i):
            return "only the thread that acts next has acted since the warps met last"
        if barrier and self.private():
            return "every thread touches bytes of its own only"
        same = [o for o in others if o != i and self.lines[o] == self.lines[i]]
        if any(self.noticed((i, o), seeds) for o in same):
            return "another sync does the same: without both it is noticed"
        return ""

    @functools.cache  # noqa: B019
    def private(self) -> bool:
        """Whether in these launches no byte of shared memory is touched by two threads, or by an engine."""
        owners: dict[int, tuple[int, int]] = {}
        alone = True

        def touch(self: Sanitizer, rows: Any, lanes: Any, index: Any, width: int, *more: Any, **named: Any) -> None:
            nonlocal alone
            for row, lane, at in zip(rows.tolist(), lanes.tolist(), index.tolist(), strict=True):
                for byte in range(at, at + width):
                    alone &= owners.setdefault(byte, (row, lane)) == (row, lane)

        def engine(self: Sanitizer, *args: Any, **named: Any) -> int:
            nonlocal alone
            alone = False
            return 0

        with pytest.MonkeyPatch.context() as patch:
            for name in ("read", "write"):
                patch.setattr(Sanitizer, name, touch)
            for name in ("async_read", "async_write", "landed", "finished"):
                patch.setattr(Sanitizer, name, engine)
            for launch in self.launches:
                owners.clear()
                launch.in_ptx("\n".join(self.lines), self.kernel, 0)
        return alone

    def _only(self, guard: str, i: int) -> bool:
        """Whether going back from line `i` only instructions of this guard act until the warps have met."""
        for line in reversed(self.lines[:i]):
            if line.strip().startswith("bar.sync"):
                return True
            if _ACTS.match(line) and not line.strip().startswith(guard):
                return False
        return False

    def _before(self, i: int) -> set[str]:
        """The lines that may be the last to act before line `i`; the empty one when the entry may begin without."""
        found: set[str] = set()
        rest, seen = [i], {i}
        while rest:
            at = rest.pop()
            label = self.lines[at].strip().removesuffix(":")
            ways = [k for k, line in enumerate(self.lines) if re.search(rf"\bbra(\.uni)? {re.escape(label)};", line)]
            if not re.match(r"\s*(bra|ret|exit)\b", self.lines[at - 1]):
                ways.append(at - 1)
            for k in ways:
                line = self.lines[k].strip()
                if _ACTS.match(line) or line == "{":
                    found.add("" if line == "{" else line)
                elif k not in seen:
                    seen.add(k)
                    rest.append(k)
        return found

    def _after(self, i: int) -> str:
        """The next line after `i` that acts, along unconditional branches; empty where the entry ends first."""
        at, seen = i + 1, {i}
        while at < len(self.lines) and at not in seen:
            seen.add(at)
            line = self.lines[at].strip()
            jump = re.match(r"bra\.uni (\w+);", line)
            if _ACTS.match(line):
                return line
            if line == "ret;":
                return ""
            at = self.lines.index(f"{jump[1]}:") if jump else at + 1
        return ""
