"""Waits that follow each other closely become one: a wait costs an issue slot even where nothing is left to wait for.

Owns when that is worth it: writes to shared memory in a row (what a tile's copies loaded) wait once for all of their data, and two products
in a row wait once for the operands of both. A wait is only ever made stricter and earlier, so that no instruction sees less than before.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.isa import resolve
from mimw.codegen.machine import Comment, Inst, Label, Symbol

_Item = Inst | Label | Comment
Counts = dict[str, int]
"""Counter ("vmcnt", "lgkmcnt") to how many may be pending."""


def merge_waits(body: list[_Item]) -> list[_Item]:
    """The body with fewer waits."""
    out: list[_Item] = []
    first: int | None = None  # where in `out` the wait stands that others may join
    since: list[Inst] = []  # instructions behind it
    for item in body:
        if not isinstance(item, Inst):
            out.append(item)
            first = None if isinstance(item, Label) else first
            continue
        if item.opcode != "s_waitcnt":
            out.append(item)
            since.append(item)
            continue
        if first is not None and (joined := _joined(out[first], since, item)) is not None:
            out[first] = joined
            if _are_writes(since):
                continue
            first = None  # two products at most
            continue
        out.append(item)
        first, since = len(out) - 1, []
    return out


def _joined(first: _Item, since: list[Inst], second: Inst) -> Inst | None:
    """One wait for two, or None where they stay apart."""
    assert isinstance(first, Inst)
    mine, other = _counts(first), _counts(second)
    if not since or mine.keys() != other.keys():
        return None
    if _are_writes(since):
        if set(mine) != {"vmcnt"}:
            return None
    elif len(since) > 1 or not since[0].opcode.startswith("v_mfma_"):
        return None
    counts = {name: min(mine[name], other[name]) for name in mine}
    return Inst("s_waitcnt", [Symbol(f"{name}({count})") for name, count in counts.items()], 0, first.loc)


def _are_writes(insts: list[Inst]) -> bool:
    """Whether all are writes of shared memory: they raise no vmcnt."""
    return all(inst.opcode.startswith("ds_write") and resolve(inst.opcode).writes for inst in insts)


def _counts(wait: Inst) -> Counts:
    found: Counts = {}
    for operand in wait.operands:
        assert isinstance(operand, Symbol)
        name, _, count = operand.name.rstrip(")").partition("(")
        found[name] = int(count)
    return found
