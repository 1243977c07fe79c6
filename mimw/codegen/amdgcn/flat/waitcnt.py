"""Wait counts: gfx9 does not stall on registers that a memory instruction has yet to write; ``s_waitcnt`` does.

Owns the insertion of the fewest waits that are right: before an instruction that reads or writes a register with a load pending, and
before ``s_barrier`` and before loads to shared memory (which stand in no queue of its) for what was asked of it. ``vmcnt`` counts vector
memory in order (loads, stores, atomics, loads to shared memory);
``lgkmcnt`` counts shared memory in order, and scalar loads and messages out of order, so that those are waited for to zero. Stores
need no wait: their data is read when they are issued (CDNA3 ISA, section 4.4; vmcnt up to 63, lgkmcnt up to 15).

Explicit waits (``p_wait_vm n``, ``p_wait_lgkm n``) become waits where more than n instructions may be pending, and nothing elsewhere. Loads
to shared memory belong to groups (``p_commit_group`` ends one): ``p_wait_group n`` waits for all groups but the latest n, and for no
other instruction that is younger. ``p_end_copy i`` makes those since the last end copy i, too, for which ``p_wait_copy i`` waits. Whoever
shares the bytes adds the barrier.

The analysis goes forward over the flow of control; where paths meet, each position in a queue holds what any of them holds there.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.flat.control_flow import runs_of
from mimw.codegen.amdgcn.flat.effects import Effects
from mimw.codegen.machine import Comment, Imm, Inst, Label, Operand, Symbol

VM_MOST, LGKM_MOST = 62, 14
"""Counts that a wait can name: one below what the counters hold, where a full counter cannot be told from more (and waiting for 15 is no wait)."""

_GROUPS, _OLDEST = 1024, 15
"""In a queue's entries, bit ``_GROUPS + k`` says: a load to shared memory whose group was followed by k ends of groups (or more, for the last)."""

_AGES = (2 << _OLDEST) - 1
_OPEN = 1 << _GROUPS + _OLDEST + 1
"""A load to shared memory behind the last end of a group or a copy."""

_COPIES = _GROUPS + _OLDEST + 2
"""Bit ``_COPIES + i``: a load to shared memory of copy i."""

_Item = Inst | Label | Comment


class _Queue:
    """Pending instructions of one counter, youngest first, each as the units it will write; `all` is their union.

    What is older than the counter can say is kept in the last place. `unordered` says that one of them may finish out of order.
    """

    __slots__ = ("all", "most", "pending", "unordered")

    def __init__(self, most: int) -> None:
        self.most = most
        self.pending: list[int] = []
        self.all = 0
        self.unordered = False

    def copy(self) -> "_Queue":
        twin = _Queue(self.most)
        twin.pending, twin.all, twin.unordered = list(self.pending), self.all, self.unordered
        return twin

    def push(self, writes: int, unordered: bool) -> None:
        """One more instruction is issued."""
        self.pending.insert(0, writes)
        self.all |= writes
        self.unordered |= unordered
        if len(self.pending) > self.most + 1:
            self.pending[self.most] |= self.pending.pop()

    def needed(self, touched: int) -> int | None:
        """The count to wait for before `touched` units may be used; None where nothing is pending for them."""
        if not self.all & touched:
            return None
        if self.unordered:
            return 0
        return next(i for i, writes in enumerate(self.pending) if writes & touched)

    def wait(self, count: int) -> None:
        """At most `count` are pending from here on."""
        del self.pending[count:]
        self._count()
        if not self.pending:
            self.unordered = False

    def commit(self) -> None:
        """A group ends: all loads to shared memory that are pending are one group older."""
        for i, writes in enumerate(self.pending):
            ages = writes >> _GROUPS & _AGES
            older = (ages << 1) | (ages & 1 << _OLDEST)
            self.pending[i] = writes & ~(_AGES << _GROUPS | _OPEN) | (older & _AGES) << _GROUPS
        self._count()

    def end_copy(self, number: int) -> None:
        """What was loaded to shared memory since the last end of a group or copy is copy `number`, too."""
        for i, writes in enumerate(self.pending):
            if writes & _OPEN:
                self.pending[i] = writes & ~_OPEN | 1 << _COPIES + number
        self._count()

    def _count(self) -> None:
        self.all = 0
        for writes in self.pending:
            self.all |= writes

    def merge(self, other: "_Queue") -> bool:
        """Take in what another path brings; says whether that is something new."""
        changed = other.unordered and not self.unordered
        self.unordered |= other.unordered
        if len(other.pending) > len(self.pending):
            self.pending += [0] * (len(other.pending) - len(self.pending))
            changed = True
        for i, writes in enumerate(other.pending):
            if writes & ~self.pending[i]:
                self.pending[i] |= writes
                changed = True
        self.all |= other.all
        return changed


class _State:
    """Both queues, and whether an access to shared memory is pending."""

    __slots__ = ("lgkm", "shared", "vm")

    def __init__(self) -> None:
        self.vm = _Queue(VM_MOST)
        self.lgkm = _Queue(LGKM_MOST)
        self.shared = False

    def copy(self) -> "_State":
        twin = _State()
        twin.vm, twin.lgkm, twin.shared = self.vm.copy(), self.lgkm.copy(), self.shared
        return twin

    def merge(self, other: "_State") -> bool:
        changed = other.shared and not self.shared
        self.shared |= other.shared
        changed |= self.vm.merge(other.vm)
        return self.lgkm.merge(other.lgkm) or changed


def insert_waits(body: list[_Item]) -> list[_Item]:
    """The body with waits; explicit ones are resolved."""
    runs = runs_of(body)
    effects = {id(item): Effects(item) for item in body if isinstance(item, Inst) and not item.opcode.startswith("p_")}
    incoming: list[_State | None] = [None] * len(runs)
    outputs: list[list[_Item]] = [[] for _ in runs]
    todo = [0] if runs else []
    if runs:
        incoming[0] = _State()
    while todo:
        index = min(todo)
        todo.remove(index)
        state = incoming[index]
        assert state is not None
        state = state.copy()
        outputs[index] = _through(runs[index].items, state, effects)
        for after in runs[index].after:
            known = incoming[after]
            if known is None:
                incoming[after] = state.copy()
            elif not known.merge(state):
                continue
            if after not in todo:
                todo.append(after)
    return [item for output in outputs for item in output]


def _through(items: list[_Item], state: _State, effects: dict[int, Effects]) -> list[_Item]:
    """Walk a run, changing `state`; returns the items with waits."""
    out: list[_Item] = []
    for item in items:
        if not isinstance(item, Inst):
            out.append(item)
            continue
        if item.opcode == "p_commit_group":
            state.vm.commit()
            continue
        if item.opcode == "p_end_copy":
            state.vm.end_copy(_number(item))
            continue
        if item.opcode.startswith("p_wait_"):
            out += _asked_for(item, state)
            continue
        effect = effects[id(item)]
        out += _wait_before(item, effect, state)
        out.append(item)
        _issue(effect, state)
    return out


def _number(item: Inst) -> int:
    number = item.operands[0]
    assert isinstance(number, Imm)
    return number.value


def _asked_for(item: Inst, state: _State) -> list[_Item]:
    """The wait that a pseudo stands for, if one is needed."""
    number = _number(item)
    if item.opcode == "p_wait_group":
        older = _AGES & -2 << min(number, _OLDEST - 1)
        return _for_loads(item, state, older << _GROUPS)
    if item.opcode == "p_wait_copy":
        return _for_loads(item, state, 1 << _COPIES + number)
    vm = item.opcode == "p_wait_vm"
    queue = state.vm if vm else state.lgkm
    if len(queue.pending) <= number:
        return []
    wanted = min(number, queue.most) if not queue.unordered else 0
    queue.wait(wanted)
    if not vm and wanted == 0:
        state.shared = False
    return [_wait(wanted if vm else None, None if vm else wanted, item)]


def _for_loads(item: Inst, state: _State, which: int) -> list[_Item]:
    wanted = state.vm.needed(which)
    if wanted is None:
        return []
    state.vm.wait(wanted)
    return [_wait(wanted, None, item)]


def _wait_before(item: Inst, effect: Effects, state: _State) -> list[_Item]:
    touched = effect.reads | effect.writes
    vm, lgkm = state.vm.needed(touched), state.lgkm.needed(touched)
    if state.shared and (item.opcode == "s_barrier" or _is_copy(effect)):
        lgkm = 0
    if vm is None and lgkm is None:
        return []
    if vm is not None:
        state.vm.wait(vm)
    if lgkm is not None:
        state.lgkm.wait(lgkm)
        state.shared = state.shared and lgkm > 0
    return [_wait(vm, lgkm, item)]


def _wait(vm: int | None, lgkm: int | None, like: Inst) -> Inst:
    operands: list[Operand] = []
    if vm is not None:
        operands.append(Symbol(f"vmcnt({vm})"))
    if lgkm is not None:
        operands.append(Symbol(f"lgkmcnt({lgkm})"))
    return Inst("s_waitcnt", operands, 0, like.loc)


def _issue(effect: Effects, state: _State) -> None:
    """What an instruction adds to the queues. An invalidation of caches is not counted."""
    counter = effect.row.counter
    if not counter or effect.inst.opcode == "buffer_inv":
        return
    if counter == "vm":
        state.vm.push(effect.writes | (1 << _GROUPS | _OPEN if _is_copy(effect) else 0), False)
        return
    shared = effect.row.unit == "ds"
    state.lgkm.push(effect.writes, not shared)
    state.shared |= shared


def _is_copy(effect: Effects) -> bool:
    """Whether an instruction loads to shared memory."""
    return effect.row.counter == "vm" and "_lds" in effect.inst.opcode
