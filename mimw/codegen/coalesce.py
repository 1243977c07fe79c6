"""Which SSA values share a register: liveness, ties and block parameters joined where they do not interfere.

Owns the live ranges and the union-find that `leave_ssa` emits from. Values joined by a tie or by a block parameter
share one register where they are never live at once; where they are, a copy is noted, or `InternalError` raised when
the instruction bears none (an accumulator in flight). Knows no mnemonic and changes nothing.

Live ranges are int bitsets over program points. A block has one point at its start, where its parameters are written,
and one at its end, where edge arguments are read. An instruction has three: tied values are read, then (copies of
ties having been made) the other operands, then results are written. So `i2 = add i, 4` may write the register of an
`i` that dies there, and a tied result never shares the register of another operand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from mimw.codegen.dataflow import bits, end_reads, live_at_ends, named, trivial_parameters
from mimw.codegen.machine import (
    Block,
    Function,
    Imm,
    Inst,
    Reg,
    Terminator,
    reachable_blocks,
    read,
    ties,
    written,
)
from mimw.diagnostics import InternalError, Loc

_Effects = tuple[list[int], Collection[int], list[int], list[int]]
"""Of an instruction, by their numbers: what it writes, what of that is tied, what it reads, the values of its ties."""


class Coalescing:
    """Which values of a function share a register. Values are numbered; `leader` is a union-find over the numbers.

    `alias` maps block parameters that are only another value's name. `copied_ties` holds, by instruction, the
    (result, value) pairs whose copy must stand before it; `accumulators` the classes that no back edge may copy.
    `bears_copies(inst)` says whether the tied values of `inst` may be copied. `InternalError` when the function is no
    valid SSA.
    """

    def __init__(self, fn: Function, bears_copies: Callable[[Inst], bool]) -> None:
        self.fn = fn
        self.bears_copies = bears_copies
        self.blocks = reachable_blocks(fn)
        self.number: dict[Reg, int] = {}
        self.values: list[Reg] = []
        self.leader: list[int] = []
        self.members: list[list[int]] = []
        self.live: list[int] = []
        self.effects: dict[int, _Effects] = {}
        self.ties: dict[int, dict[Reg, Reg | Imm]] = {}
        self.live_at_entry = 0
        self.copied_ties: dict[int, list[tuple[Reg, Reg | Imm]]] = {}
        self.accumulators: set[int] = set()
        self.order = {id(block): i for i, block in enumerate(self.blocks)}
        self.preds: dict[int, int] = {}
        self._check_edges()
        self.alias = trivial_parameters(self.blocks, lambda value, param: value.cls == param.cls)
        self._number_values()
        self._live_ranges()
        self._join_ties()
        self._join_params()

    # --- checks and trivial parameters

    def _check_edges(self) -> None:
        for block in self.blocks:
            for edge in self.term(block).edges:
                self.preds[id(edge.block)] = self.preds.get(id(edge.block), 0) + 1
                if len(edge.args) != len(edge.block.params):
                    raise InternalError(
                        f"an edge to {edge.block.hint or 'a block'} brings {len(edge.args)} values for "
                        f"{len(edge.block.params)} parameters",
                        self.term(block).loc,
                    )
        if self.blocks and (self.blocks[0].params or self.preds.get(id(self.blocks[0]))):
            raise InternalError(f"the first block of {self.fn.name} has parameters or predecessors")

    def term(self, block: Block) -> Terminator:
        """The terminator of a reachable block (`reachable_blocks` saw to it that there is one)."""
        assert block.term is not None
        return block.term

    def value(self, operand: Reg | Imm) -> Reg | Imm:
        """The value that stands for `operand` once trivial parameters are gone."""
        return named(operand, self.alias) if isinstance(operand, Reg) else operand

    # --- live ranges

    def _number_values(self) -> None:
        results: list[tuple[Inst, list[Reg]]] = []
        for block in self.blocks:
            for param in block.params:
                if param not in self.alias:
                    self._define(param, None)
            for inst in block.insts:
                if isinstance(inst, Inst):
                    regs = written(inst)
                    results.append((inst, regs))
                    for reg in regs:
                        self._define(reg, inst.loc)
        self.leader = list(range(len(self.values)))
        self.members = [[i] for i in self.leader]
        self.live = [0] * len(self.values)
        for inst, regs in results:
            tied = self._tied(inst)
            self.effects[id(inst)] = (
                [self.number[reg] for reg in regs],
                {self.number[reg] for reg in regs if reg in tied} if tied else (),
                self.numbers(read(inst, tied=False), inst.loc),
                self.numbers([value for value in tied.values() if isinstance(value, Reg)], inst.loc) if tied else [],
            )

    def _define(self, reg: Reg, loc: Loc | None) -> None:
        if reg in self.number:
            raise InternalError(f"register {reg!r} is defined twice", loc)
        self.number[reg] = len(self.values)
        self.values.append(reg)

    def numbers(self, regs: list[Reg], loc: Loc | None) -> list[int]:
        """The numbers of the values that `regs` stand for."""
        number, alias = self.number, self.alias
        found: list[int] = []
        for reg in regs:
            index = number.get(reg)
            if index is None:
                value = named(reg, alias)
                index = number.get(value)
                if index is None:
                    raise InternalError(f"register {value!r} is used and never defined", loc)
            found.append(index)
        return found

    def _live_ranges(self) -> None:
        self.live_at_entry, live_out = live_at_ends(self.blocks, self._block_uses)
        point = 0
        for block in self.blocks:
            start = point
            end = start + 1 + 3 * len(block.insts)
            point = end + 1
            last = dict.fromkeys(bits(live_out[id(block)]), end)
            self._walk_back(block, start, end, last)
            for index, upto in last.items():
                self.live[index] |= (2 << upto) - (1 << start)
            for param in block.params:
                if param not in self.alias:
                    self.live[self.number[param]] |= 1 << start
        if self.blocks:
            self._check_entry()

    def _walk_back(self, block: Block, start: int, end: int, last: dict[int, int]) -> None:
        """Fill the ranges that end inside `block`; leaves in `last` what is live at its start, with its last point."""
        for index in self.numbers(end_reads(block, self.alias), self.term(block).loc):
            last.setdefault(index, end)
        live, effects = self.live, self.effects
        for i in range(len(block.insts) - 1, -1, -1):
            found = effects.get(id(block.insts[i]))
            if found is None:
                continue
            at = start + 1 + 3 * i
            writes, early, reads, tied = found
            for index in writes:
                begin = at + 1 if index in early else at + 2
                live[index] |= (2 << last.pop(index, at + 2)) - (1 << begin)
            for index in reads:
                last.setdefault(index, at + 1)
            for index in tied:
                last.setdefault(index, at)

    def _tied(self, inst: Inst) -> dict[Reg, Reg | Imm]:
        """The ties of `inst`, result to value."""
        if inst.tied_in is None:
            return {}
        found = self.ties.get(id(inst))
        if found is None:
            found = self.ties[id(inst)] = dict(ties(inst))
        return found

    def _block_uses(self, block: Block) -> tuple[int, int]:
        """Values that `block` reads before it writes them, and values that it writes (parameters are written)."""
        term = self.term(block)
        need = 0
        for index in self.numbers(end_reads(block, self.alias), term.loc):
            need |= 1 << index
        give = 0
        for inst in reversed(block.insts):
            found = self.effects.get(id(inst))
            if found is None:
                continue
            writes, _, reads, tied = found
            bits_written = 0
            for index in writes:
                bits_written |= 1 << index
            give |= bits_written
            need &= ~bits_written
            for index in reads:
                need |= 1 << index
            for index in tied:
                need |= 1 << index
        for param in block.params:
            if param not in self.alias:
                bit = 1 << self.number[param]
                give |= bit
                need &= ~bit
        return need, give

    def _check_entry(self) -> None:
        if self.live_at_entry:
            names = ", ".join(repr(self.values[i]) for i in list(bits(self.live_at_entry))[:4])
            raise InternalError(f"{self.fn.name} uses registers before they are defined: {names}")

    # --- coalescing

    def find(self, index: int) -> int:
        """The representative of a value's class."""
        leader = self.leader
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    def join(self, a: int, b: int) -> bool:
        """Put two classes into one register if they are alike and never live at once; says whether they are."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return True
        if self.values[a].cls != self.values[b].cls or self.live[a] & self.live[b]:
            return False
        if len(self.members[a]) < len(self.members[b]):
            a, b = b, a
        self.leader[b] = a
        self.live[a] |= self.live[b]
        self.members[a] += self.members[b]
        if b in self.accumulators:
            self.accumulators.add(a)
        return True

    def _join_ties(self) -> None:
        for block in self.blocks:
            for inst in block.insts:
                if isinstance(inst, Inst) and inst.tied_in is not None:
                    self._join_tie(inst)

    def _join_tie(self, inst: Inst) -> None:
        strict = not self.bears_copies(inst)
        for result, tied in self._tied(inst).items():
            value = self.value(tied)
            index = self.number[result]
            if isinstance(value, Reg) and self.join(index, self.numbers([value], inst.loc)[0]):
                pass
            elif strict and isinstance(value, Reg):
                raise InternalError(
                    f"{inst.opcode}: the accumulator {tied!r} is needed after the product that overwrites it", inst.loc
                )
            else:
                self.copied_ties.setdefault(id(inst), []).append((result, value))
            if strict:
                self.accumulators.add(self.find(index))

    def _join_params(self) -> None:
        """Loops first (their copies run most often), each in layout order."""
        edges = [(block, edge) for block in self.blocks for edge in self.term(block).edges]
        edges.sort(key=lambda pair: self.order[id(pair[1].block)] > self.order[id(pair[0])])
        for block, edge in edges:
            for param, arg in zip(edge.block.params, edge.args, strict=True):
                value = self.value(arg)
                if param not in self.alias and isinstance(value, Reg):
                    self.join(self.number[param], self.numbers([value], self.term(block).loc)[0])

    def registers(self) -> dict[Reg, Reg]:
        """For every register of the function, the one that it is in in the flat form. One with a hint is preferred, parameters of blocks first."""
        values = self.values
        found: dict[Reg, Reg] = {}
        for members in (self.members[i] for i in range(len(values)) if self.leader[i] == i):
            regs = [values[i] for i in sorted(members)]
            found.update(dict.fromkeys(regs, next((reg for reg in regs if reg.hint), regs[0])))
        for param in self.alias:
            value = named(param, self.alias)
            if value in found:
                found[param] = found[value]
        return found
