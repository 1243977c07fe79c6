"""How the tasks of a CTA share its registers: the value of `setmaxnreg` for each warp group.

Pure arithmetic on what the tasks ask for. The pool is what the CTA gets at its start: every thread the same number, which `.reqntid` fixes.
`setmaxnreg` moves registers between warp groups of the pool; asking for more than is ever handed back waits for ever, so the sum is checked.
"""

from __future__ import annotations

from mimw.diagnostics import CompilationError, Loc

WARP_GROUP = 4
LEAST, MOST = 24, 240
LIGHT = 40
"""Registers of a task that only issues copies: 40 were enough for every producer tried; 32 when the others starve."""
_STARVING = 200


class Demand:
    """What one warp group wants: `fixed` registers a thread (0: not asked), else `light` (copies and barriers only), `wanted` as an estimate
    for small tasks with tiles (0: as many as possible)."""

    __slots__ = ("fixed", "light", "wanted")

    def __init__(self) -> None:
        self.fixed = 0
        self.light = True
        self.wanted = 0


def entry_registers(threads: int, maxnreg: int = 0) -> int:
    """Registers a thread that a CTA of so many threads has at its start (a multiple of 8; PTX ISA, `setmaxnreg`)."""
    most = min(65536 // threads, 255)
    return (min(most, maxnreg) if maxnreg else most) // 8 * 8


def share(groups: list[Demand], entry: int, table: str, loc: Loc) -> list[int]:
    """Registers a thread for each warp group; all 0 where reallocation has no use. `CompilationError` ("registers") when they do not fit;
    `table` lists the tasks for its message."""
    pool = entry * len(groups)
    asked = any(g.fixed for g in groups)
    light = [g for g in groups if g.light]
    if len(groups) < 2 or (not asked and (not light or len(light) == len(groups))):
        return [0] * len(groups)
    values = _divide(groups, pool, LIGHT)
    if not asked and min(v for v, g in zip(values, groups, strict=True) if not g.light) < _STARVING:
        values = _divide(groups, pool, 32)
    total = sum(values)
    if total > pool or min(values) < LEAST:
        fixed = sum(g.fixed for g in groups)
        raise CompilationError(
            "registers",
            f"the tasks ask for more registers than the CTA has: {len(groups)} warp groups start with {entry} a thread, {pool} in all; "
            f"{fixed} are asked for"
            + (f", which leaves less than {LEAST} for a warp group" if fixed <= pool else "")
            + f"\n{table}",
            loc,
            hint="ask for fewer with num_regs=, or leave num_regs away: the compiler shares out what there is",
        )
    return values


def _divide(groups: list[Demand], pool: int, light: int) -> list[int]:
    """Fixed ones first, then the light and the small, the rest evenly among the others."""
    values = [g.fixed or (light if g.light else min(g.wanted, MOST)) for g in groups]
    heavy = [i for i, v in enumerate(values) if not v]
    rest = pool - sum(values)
    for i in heavy:
        values[i] = max(0, min(MOST, rest // len(heavy) // 8 * 8))
    return values
