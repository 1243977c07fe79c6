"""The basic blocks of a flat body, for passes that follow what may happen at run time."""

from __future__ import annotations

from mimw.codegen.machine import Comment, Inst, Label, LabelRef
from mimw.diagnostics import InternalError


class Run:
    """A straight run of items; `after` are the indices of the runs that may follow."""

    __slots__ = ("after", "items")

    def __init__(self) -> None:
        self.items: list[Inst | Label | Comment] = []
        self.after: list[int] = []


def runs_of(body: "list[Inst | Label | Comment]") -> list[Run]:
    """The body cut at labels and behind branches; `InternalError` where a branch names no label."""
    runs = [Run()]
    labels: dict[str, int] = {}
    for item in body:
        if isinstance(item, Label):
            if runs[-1].items:
                runs.append(Run())
            labels[item.name] = len(runs) - 1
        runs[-1].items.append(item)
        if isinstance(item, Inst) and _leaves(item):
            runs.append(Run())
    if not runs[-1].items:
        runs.pop()
    for i, run in enumerate(runs):
        last = run.items[-1]
        opcode = last.opcode if isinstance(last, Inst) else ""
        if opcode.startswith(("s_branch", "s_cbranch")):
            assert isinstance(last, Inst)
            run.after.append(_target(last, labels))
        if opcode not in ("s_branch", "s_endpgm") and i + 1 < len(runs):
            run.after.append(i + 1)
    return runs


def _leaves(inst: Inst) -> bool:
    return inst.opcode.startswith(("s_branch", "s_cbranch", "s_endpgm"))


def _target(inst: Inst, labels: dict[str, int]) -> int:
    label = inst.operands[0]
    if not isinstance(label, LabelRef) or label.name not in labels:
        raise InternalError(f"{inst.opcode} names no label", inst.loc)
    return labels[label.name]
