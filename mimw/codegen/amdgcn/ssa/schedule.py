"""Reads of shared memory move down to the matrix products that want them, as far ahead as registers last.

Lowering reads all operands of a tile's product and then multiplies: with large tiles that is more than a wave's registers hold. Here the
reads of the next products stand among those at work, so that they are under way meanwhile and their registers are used over and over.

Owns the order of instructions between two walls (barriers, writes of shared memory, waits, what else may not be passed). Products and
whatever does not come from a read keep their order; a read, and arithmetic on what was read, moves. Assumes a prepared function
(`prepare`), changes it.
"""

from __future__ import annotations

from collections import Counter

from mimw.codegen.amdgcn.isa import resolve
from mimw.codegen.amdgcn.registers import shape
from mimw.codegen.amdgcn.ssa.prepare import removable
from mimw.codegen.amdgcn.ssa.pressure import Pressure
from mimw.codegen.machine import Block, Comment, Function, Inst, Reg, read, written

SLACK = 28
"""Vector registers left for addresses and what else is made on the way."""

_Item = Inst | Comment
_COUNTS = frozenset(("p_add_u64", "p_sub_u64", "s_add_i32", "s_sub_i32", "s_add_u32", "s_sub_u32"))
_PASSED = frozenset(("valu", "trans", "mfma", "vmem", "smem"))


def schedule(fn: Function, registers: int) -> int:
    """Spread the reads of every block that multiplies; `registers` are the vector and accumulation ones. Returns how many reads moved."""
    blocks = [block for block in fn.blocks if sum(map(_is_product, block.insts)) > 1]
    if not blocks:
        return 0
    readers = _readers(fn)
    for block in blocks:
        block.insts = _late(block.insts, readers)
    pressure = Pressure(fn)
    return sum(_in_block(block, pressure, registers) for block in blocks)


def _in_block(block: Block, pressure: Pressure, registers: int) -> int:
    segments = [_Segment(items) for items in _between_walls(block.insts)]
    moving = {pressure.whole(reg) for segment in segments for inst in segment.moving for reg in written(inst)}
    most = pressure.most([block], moving)
    room = registers - SLACK - most["v"] - most["a"]
    block.insts = [item for segment in segments for item in segment.spread(room)]
    return sum(segment.moved for segment in segments)


def _readers(fn: Function) -> Counter[Reg]:
    """How many instructions read each register; ends of blocks do not count."""
    return Counter(
        reg for block in fn.blocks for inst in block.insts if isinstance(inst, Inst) for reg in set(read(inst))
    )


def _late(insts: list[_Item], readers: Counter[Reg]) -> list[_Item]:
    """The instructions with what is wanted once as late as can be: an address right before its global access, the next trip's scalars at the
    end.

    All at once, addresses would take registers, and loads in a row that write registers of others' addresses would have to be kept
    apart (`nops`); a scalar that is counted on while its old value is still wanted would be copied.
    """
    out: list[_Item] = []
    late: dict[Reg, Inst] = {}
    last: list[Inst] = []
    for item in insts:
        if isinstance(item, Inst):
            wanted = [late.pop(reg) for reg in read(item) if reg in late]
            result = written(item)[0] if item.num_results else None
            if item.opcode == "v_lshl_add_u64" and not wanted and result is not None and readers[result] == 1:
                late[result] = item
                continue
            if item.opcode in _COUNTS and result is not None and not readers[result]:
                last.append(item)
                continue
            out += wanted
        out.append(item)
    end = len(out)
    if out and isinstance(out[-1], Inst) and not out[-1].num_results:
        end -= 1  # a comparison that decides the branch
    return [*out[:end], *late.values(), *last, *out[end:]]


def _between_walls(insts: list[_Item]) -> list[list[_Item]]:
    """The instructions cut before and behind each wall."""
    out: list[list[_Item]] = [[]]
    for item in insts:
        if isinstance(item, Inst) and not _can_be_passed(item):
            out.append([item])
            out.append([])
        else:
            out[-1].append(item)
    return out


def _can_be_passed(inst: Inst) -> bool:
    """Whether a read of shared memory may move across."""
    if inst.opcode[:2] == "p_":
        return removable(inst)
    row = resolve(inst.opcode)
    return (
        row.unit in _PASSED
        or _is_read(inst)
        or (row.unit == "salu" and (row.removable or "scc" in row.implicit_writes))
    )


def _is_product(item: _Item) -> bool:
    return isinstance(item, Inst) and item.opcode.startswith("v_mfma_")


def _is_read(inst: Inst) -> bool:
    """A read of shared memory that nobody guards."""
    if inst.opcode[:3] != "ds_" or inst.guard is not None or inst.tied_in is not None:
        return False
    row = resolve(inst.opcode)
    return row.reads and not row.writes and inst.num_results > 0


def _is_arithmetic(inst: Inst) -> bool:
    """Registers from registers alone."""
    if inst.guard is not None or inst.tied_in is not None or not inst.num_results:
        return False
    if inst.opcode[:2] == "p_":
        return removable(inst) and "_load_" not in inst.opcode
    row = resolve(inst.opcode)
    return row.unit in ("valu", "trans", "salu") and row.removable and not row.reads and not row.implicit_reads


class _Segment:
    """Instructions between two walls: `moving` ones (reads, and arithmetic on them that a later one here wants), and the fixed others."""

    def __init__(self, items: list[_Item]) -> None:
        self.items = items
        self.moved = 0
        self.maker: dict[Reg, Inst] = {}
        self.moving: list[Inst] = []
        if sum(map(_is_product, items)) > 1:
            self._find_moving()
        self._ids = {id(inst) for inst in self.moving}

    def _find_moving(self) -> None:
        found: list[Inst] = []
        makers: dict[Reg, Inst] = {}
        for item in self.items:
            if isinstance(item, Inst) and (
                _is_read(item) or (_is_arithmetic(item) and any(reg in makers for reg in read(item)))
            ):
                found.append(item)
                for reg in written(item):
                    makers[reg] = item
        ids = {id(inst) for inst in found}
        wanted: set[Reg] = set()
        for item in reversed(self.items):
            if isinstance(item, Inst) and (id(item) not in ids or not wanted.isdisjoint(written(item))):
                wanted.update(read(item))
        self.moving = [inst for inst in found if not wanted.isdisjoint(written(inst))]
        self.maker = {reg: inst for inst in self.moving for reg in written(inst)}

    def spread(self, room: int) -> list[_Item]:
        """The items in their new order, reads ahead of their products as far as `room` registers hold what was read."""
        if not self.moving:
            return self.items
        fixed = [item for item in self.items if id(item) not in self._ids]
        demand, last_use = self._demand(fixed)
        reads = [inst for inst in demand if _is_read(inst)]
        issue = _Issue(self, last_use, fixed)
        upcoming = 0
        for place, item in enumerate(fixed):
            if isinstance(item, Inst):
                issue.what_is_read_by(item)
                if _is_product(item):
                    upcoming = self._ahead(issue, reads, upcoming, room)
            issue.out.append(item)
            issue.free(place, item)
        self.moved = sum(1 for old, new in zip(self.items, issue.out, strict=True) if old is not new and new in reads)
        return issue.out

    def _ahead(self, issue: "_Issue", reads: list[Inst], upcoming: int, room: int) -> int:
        """Issue reads in the order of demand while their results have room; the index of the next one."""
        while upcoming < len(reads):
            inst = reads[upcoming]
            if id(inst) not in issue.done:
                if issue.held + _size(inst) > room or not issue.ready(inst):
                    break
                issue.what_is_read_by(inst)
                issue.put(inst)
            upcoming += 1
        return upcoming

    def _demand(self, fixed: list[_Item]) -> tuple[list[Inst], dict[int, int]]:
        """The moving instructions in the order in which fixed ones want them, and the index of the last fixed one that wants each."""
        order: dict[int, Inst] = {}
        last: dict[int, int] = {}
        for place, item in enumerate(fixed):
            if isinstance(item, Inst):
                for inst in self.needs(item):
                    order.setdefault(id(inst), inst)
                    last[id(inst)] = place
        return list(order.values()), last

    def needs(self, item: Inst) -> list[Inst]:
        """The moving instructions that `item` depends on, directly or not, each behind what it needs itself."""
        out: dict[int, Inst] = {}
        todo = [(item, False)]
        while todo:
            inst, ready = todo.pop()
            if ready:
                out.setdefault(id(inst), inst)
                continue
            if inst is not item:
                if id(inst) in out:
                    continue
                todo.append((inst, True))
            todo += [(self.maker[reg], False) for reg in reversed(read(inst)) if reg in self.maker]
        return list(out.values())


class _Issue:
    """The new order as it grows: `held` registers hold what was read and is still wanted, `later` are made by fixed ones still to come."""

    def __init__(self, segment: _Segment, last_use: dict[int, int], fixed: list[_Item]) -> None:
        self.segment = segment
        self.out: list[_Item] = []
        self.done: set[int] = set()
        self.held = 0
        self._until: dict[int, int] = {}
        self._last_use = last_use
        self.later = {reg for item in fixed if isinstance(item, Inst) for reg in written(item)}

    def ready(self, inst: Inst) -> bool:
        """Whether all is there that a read takes from fixed instructions, itself or through what it needs."""
        return all(self.later.isdisjoint(read(needed)) for needed in (*self.segment.needs(inst), inst))

    def what_is_read_by(self, item: Inst) -> None:
        """Put in front what `item` needs and is not there yet."""
        for inst in self.segment.needs(item):
            if id(inst) not in self.done:
                self.put(inst)

    def put(self, inst: Inst) -> None:
        """A moving instruction comes next."""
        self.done.add(id(inst))
        self.out.append(inst)
        if _is_read(inst):
            self.held += _size(inst)
            until = self._last_use[id(inst)]
            self._until[until] = self._until.get(until, 0) + _size(inst)

    def free(self, place: int, item: _Item) -> None:
        """The fixed instruction at `place` is there; it was the last one to want some results."""
        if isinstance(item, Inst):
            self.later.difference_update(written(item))
        self.held -= self._until.pop(place, 0)


def _size(inst: Inst) -> int:
    return sum(shape(reg.cls)[1] for reg in written(inst))
