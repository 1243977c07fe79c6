"""The one error of the PTX simulator, and how it tells which instruction, line and thread it speaks of.

Knows nothing of execution: who raises adds what it knows.
"""

from __future__ import annotations

from mimw.codegen.machine import Addr, Imm, Inst, LabelRef, Not, Operand, Pair, Reg, Sink, Special, Symbol, Vec
from mimw.sim.errors import MachineError

CODE = "ptx-fault"


class SimulationError(MachineError):
    """A program did what the ISA does not allow, or what this simulator cannot run yet.

    `message` says what; `inst` is the instruction that was running, `where` the threads (``cta (0,0,0) warp 1 lane 3``). The code is always
    ``"ptx-fault"``.
    """

    def __init__(self, message: str, inst: Inst | None = None, where: str = "") -> None:
        super().__init__(CODE, message, inst, where)

    def describe(self) -> str:
        """The instruction's text with its guard, and its source place when it has one."""
        return describe(self.inst)


def show_operand(op: Operand) -> str:
    """One operand roughly as PTX spells it (for messages only)."""
    if isinstance(op, Reg):
        return op.name or repr(op)
    if isinstance(op, Imm):
        return f"0f{op.value:08X}" if op.cls == "f32" else f"0d{op.value:016X}" if op.cls == "f64" else str(op.value)
    if isinstance(op, (Special, Symbol, LabelRef)):
        return op.name
    if isinstance(op, Vec):
        return "{" + ", ".join(show_operand(item) for item in op.items) + "}"
    if isinstance(op, Not):
        return "!" + show_operand(op.reg)
    if isinstance(op, Pair):
        return f"{show_operand(op.first)}|{show_operand(op.second)}"
    if isinstance(op, Addr):
        off = f"+{op.offset}" if op.offset else ""
        coords = ", {" + ", ".join(show_operand(c) for c in op.coords) + "}" if op.coords else ""
        return f"[{show_operand(op.base)}{off}{coords}]"
    assert isinstance(op, Sink)
    return "_"


def describe(inst: Inst) -> str:
    """The instruction's text with its guard, and its source place when it has one."""
    guard = ""
    if inst.guard is not None:
        guard = f"@{'!' if inst.guard_neg else ''}{show_operand(inst.guard)} "
    text = f"{guard}{inst.opcode} {', '.join(show_operand(op) for op in inst.operands)};"
    return f"`{text.replace(' ;', ';')}`" + (f" ({inst.loc})" if inst.loc is not None else "")
