"""Wait states between instructions that stand too close (`hazards`): other instructions where there are some, ``s_nop`` else.

Owns the window of the latest instructions, over the flow of control (where paths meet, both windows count), and the choice of what fills
a gap: arithmetic from further down that depends on nothing it would pass.

Memory instructions in a row (scalar ones, or vector ones) are a clause, which may be replayed as a whole when a page is missing (XNACK; the
code objects say that they bear it): so none may write what another of the clause reads, and a store ends a clause of loads.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.flat.control_flow import Run, runs_of
from mimw.codegen.amdgcn.flat.effects import VECTOR_UNITS
from mimw.codegen.amdgcn.flat.hazards import WINDOW, Hazards, wait_states
from mimw.codegen.amdgcn.registers import EXEC, M0
from mimw.codegen.machine import Comment, Imm, Inst, Label

REACH = 12
"""How far down we look for something to fill a gap with."""

_Item = Inst | Label | Comment
_EXEC = 3 << EXEC
_FIXED = _EXEC | 1 << M0
_WALLS = (
    "s_waitcnt",
    "s_barrier",
    "s_nop",
    "s_set",
    "s_sleep",
    "s_endpgm",
    "s_branch",
    "s_cbranch",
    "s_trap",
    "s_send",
)


class _Window:
    """The latest instructions that may matter, each with the time of its issue; `clock` counts wait states."""

    __slots__ = ("clock", "recent")

    def __init__(self) -> None:
        self.clock = 0
        self.recent: dict[int, tuple[int, Hazards]] = {}

    def copy(self) -> "_Window":
        twin = _Window()
        twin.clock, twin.recent = self.clock, dict(self.recent)
        return twin

    def add(self, inst: Hazards) -> None:
        """The instruction has just been issued; those out of reach are forgotten now and then."""
        if len(self.recent) > 2 * WINDOW:
            self.recent = {key: entry for key, entry in self.recent.items() if self.clock - entry[0] < WINDOW}
        self.recent[id(inst)] = (self.clock, inst)

    def missing(self, after: Hazards, gfx950: bool) -> int:
        """Wait states that an instruction needs before it may be issued."""
        need = 0
        for stamp, before in self.recent.values():
            if before.danger & after.touched:
                need = max(need, wait_states(before, after, gfx950) - (self.clock - stamp))
        return need

    def merge(self, other: "_Window") -> bool:
        """Take in another path, each instruction with its smaller distance; says whether that is something new."""
        changed = False
        for key, (stamp, inst) in other.recent.items():
            since = other.clock - stamp
            known = self.recent.get(key)
            if since < WINDOW and (known is None or since < self.clock - known[0]):
                self.recent[key] = (self.clock - since, inst)
                changed = True
        return changed


def insert_nops(body: list[_Item], gfx950: bool) -> list[_Item]:
    """The body with every gap filled, for gfx950 or for gfx942."""
    runs = runs_of(body)
    known = {id(item): Hazards(item, gfx950) for item in body if isinstance(item, Inst)}
    incoming: list[_Window | None] = [None] * len(runs)
    outputs: list[list[_Item]] = [[] for _ in runs]
    clauses = [_Clause() for _ in runs]
    todo: list[int] = []
    if runs:
        incoming[0] = _Window()
        todo.append(0)
    while todo:
        index = min(todo)
        todo.remove(index)
        start = incoming[index]
        assert start is not None
        walk = _Walk(runs[index], start.copy(), known, gfx950)
        if index and index in runs[index - 1].after:
            walk.clause = clauses[index - 1].copy()
        outputs[index] = walk.run()
        clauses[index] = walk.clause
        for after in runs[index].after:
            earlier = incoming[after]
            if earlier is None:
                incoming[after] = walk.window.copy()
            elif not earlier.merge(walk.window):
                continue
            if after not in todo:
                todo.append(after)
    return [item for output in outputs for item in output]


class _Clause:
    """The memory instructions right before: of which unit, and what they read and write."""

    __slots__ = ("reads", "unit", "writes")

    def __init__(self) -> None:
        self.unit = ""
        self.reads = self.writes = 0

    def copy(self) -> "_Clause":
        """A clause that starts as this one."""
        twin = _Clause()
        twin.unit, twin.reads, twin.writes = self.unit, self.reads, self.writes
        return twin

    def admits(self, facts: Hazards) -> bool:
        """Whether the instruction may follow at once."""
        if facts.row.unit != self.unit or not self.writes:
            return True
        reads, writes = self.reads | facts.reads, self.writes | facts.writes
        return not facts.row.writes and not reads & writes

    def add(self, facts: Hazards) -> None:
        """The instruction is issued."""
        unit = facts.row.unit if facts.row.unit in ("vmem", "smem") else ""
        if unit != self.unit:
            self.unit = unit
            self.reads = self.writes = 0
        if unit:
            self.reads |= facts.reads
            self.writes |= facts.writes


class _Walk:
    """One way through a run."""

    def __init__(self, run: Run, window: _Window, known: dict[int, Hazards], gfx950: bool) -> None:
        self.items = list(run.items)
        self.window = window
        self.known = known
        self.gfx950 = gfx950
        self.clause = _Clause()
        self.out: list[_Item] = []

    def run(self) -> list[_Item]:
        """The items with their gaps filled; `window` is then what the run leaves behind."""
        at = 0
        while at < len(self.items):
            item = self.items[at]
            if isinstance(item, Inst):
                facts = self.known[id(item)]
                missing = max(self.window.missing(facts, self.gfx950), 0 if self.clause.admits(facts) else 1)
                while missing > 0:
                    missing -= self._fill(at, missing, item)
                self._issue(item)
            else:
                self.out.append(item)
            at += 1
        return self.out

    def _issue(self, item: Inst) -> None:
        facts = self.known[id(item)]
        self.out.append(item)
        self.window.clock += _length(item)
        self.clause.add(facts)
        if facts.danger:
            self.window.add(facts)

    def _fill(self, at: int, missing: int, like: Inst) -> int:
        """Put something before the item at `at`; returns how many wait states it is."""
        found = self._filler(at)
        if found is not None:
            item = self.items.pop(found)
            assert isinstance(item, Inst)
            self._issue(item)
            return _length(item)
        states = min(missing, 8)
        self.out.append(Inst("s_nop", [Imm(states - 1)], 0, like.loc))
        self.window.clock += states
        self.clause = _Clause()
        return states

    def _filler(self, at: int) -> int | None:
        """The next instruction that may go in front of the one at `at`."""
        reads = writes = 0
        for i in range(at, min(at + REACH, len(self.items))):
            item = self.items[i]
            if isinstance(item, Label):
                return None
            if isinstance(item, Comment):
                continue
            if item.opcode.startswith(_WALLS):
                return None
            facts = self.known[id(item)]
            lanes = _EXEC if facts.row.unit in VECTOR_UNITS else 0
            free = not ((facts.reads | lanes) & writes or facts.writes & (reads | writes))
            if i > at and free and _movable(facts) and self.window.missing(facts, self.gfx950) <= 0:
                return i
            reads |= facts.reads | lanes
            writes |= facts.writes
        return None


def _movable(facts: Hazards) -> bool:
    """Whether an instruction is arithmetic on registers alone."""
    return facts.row.unit in ("valu", "trans", "salu") and facts.row.removable and not facts.writes & _FIXED


def _length(inst: Inst) -> int:
    """Wait states that an instruction is: ``s_nop n`` n + 1, others 1."""
    operand = inst.operands[0] if inst.opcode == "s_nop" else None
    return operand.value + 1 if isinstance(operand, Imm) else 1
