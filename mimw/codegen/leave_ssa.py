"""Out of SSA: a `machine.Function` with block parameters and ties becomes a `FlatFunction` of labels and instructions.

Owns block layout (the function's own order), the copies on edges (parallel ones, cycles broken by a temporary) and
before ties, and branches. Which values share a register is decided in `coalesce`. The function that comes in is not
changed. What a move or a branch is called comes from `Flow`; no other mnemonic is known here.
"""

from __future__ import annotations

from mimw.codegen.coalesce import Coalescing
from mimw.codegen.machine import (
    Addr,
    Block,
    Comment,
    Edge,
    FlatFunction,
    Function,
    Imm,
    Inst,
    Label,
    LabelRef,
    Not,
    Operand,
    Pair,
    Reg,
    Terminator,
    Vec,
    operand_regs,
)
from mimw.diagnostics import UNKNOWN, CompilationError, InternalError, Loc


class Flow:
    """How a target spells moves, branches and returns, and which ties bear no copy. This one is PTX."""

    def move(self, dst: Reg, src: Reg | Imm, loc: Loc | None) -> Inst:
        """Copy `src` to `dst`; an integer immediate is taken as bits."""
        cls = dst.cls
        if isinstance(src, Imm) and src.cls == "int" and cls in ("f32", "f64"):
            cls = "b" + cls[1:]
        return Inst(f"mov.{cls}", [dst, src], 1, loc)

    def branch(
        self, label: str, uniform: bool, loc: Loc | None, cond: Reg | None = None, negated: bool = False
    ) -> Inst:
        """Jump to `label`, if `cond` (or its negation) where one is given."""
        return Inst("bra.uni" if uniform else "bra", [LabelRef(label)], 0, loc, cond, negated)

    def leave(self, loc: Loc | None) -> Inst:
        """Return from the entry."""
        return Inst("ret", [], 0, loc)

    def bears_copies(self, inst: Inst) -> bool:
        """Whether tied values of `inst` may be copied; those of an asynchronous product may not: ptxas serialises."""
        return not inst.opcode.startswith("wgmma")

    def settles(self, inst: Inst) -> bool:
        """Whether what `inst` redefines is finished after it: accumulators behind a wait for all products are plain values."""
        if not inst.opcode.startswith("wgmma.wait_group"):
            return False
        pending = inst.operands[0]
        return isinstance(pending, Imm) and pending.value == 0


def leave_ssa(fn: Function, flow: Flow | None = None) -> FlatFunction:
    """The flat form of `fn`. `InternalError` when `fn` is no valid SSA or a product's accumulator would have to be copied;
    `CompilationError` when a loop carries accumulators in flight into each other's registers."""
    flow = flow or Flow()
    return _Emitter(fn, Coalescing(fn, flow.bears_copies), flow).run()


class _Emitter:
    """Writes the flat body in layout order."""

    def __init__(self, fn: Function, state: Coalescing, flow: Flow) -> None:
        self.fn = fn
        self.s = state
        self.flow = flow
        self.out = FlatFunction(fn.name, fn.params)
        self.body = self.out.body
        self.names = state.registers()
        self.labels: dict[int, str] = {}
        self.extra = 0
        self.settled = {
            reg
            for block in state.blocks
            for inst in block.insts
            if isinstance(inst, Inst) and inst.redefined is not None and flow.settles(inst)
            for operand in inst.redefined
            for reg in operand_regs(operand)
        }

    def run(self) -> FlatFunction:
        fn, out = self.fn, self.out
        out.directives, out.shared, out.pointers = dict(fn.directives), list(fn.shared), dict(fn.pointers)
        blocks = self.s.blocks
        for i, block in enumerate(blocks):
            self.body.append(Label(self._label(block), "nounroll" if block.nounroll else ""))
            for inst in block.insts:
                if isinstance(inst, Comment):
                    self.body.append(inst)
                else:
                    self._inst(inst)
            self._terminator(block, blocks[i + 1] if i + 1 < len(blocks) else None)
        self._drop_unused_labels()
        self._collect_regs()
        return out

    def _label(self, block: Block) -> str:
        name = self.labels.get(id(block))
        if name is None:
            hint = "".join(c if c.isalnum() else "_" for c in block.hint)
            name = f"L{self.s.order[id(block)]}_{hint}" if hint else f"L{self.s.order[id(block)]}"
            self.labels[id(block)] = name
        return name

    # --- instructions

    def _inst(self, inst: Inst) -> None:
        copies = self.s.copied_ties.get(id(inst))
        if copies is not None:
            self._parallel([(self.names[dst], self._source(src)) for dst, src in copies], inst.loc)
        operands = [self._operand(operand) for operand in inst.operands]
        guard = self.names[inst.guard] if inst.guard is not None else None
        self.body.append(Inst(inst.opcode, operands, inst.num_results, inst.loc, guard, inst.guard_neg))

    def _source(self, source: Reg | Imm) -> Reg | Imm:
        return self.names[source] if isinstance(source, Reg) else source

    def _operand(self, operand: Operand) -> Operand:
        names = self.names
        if isinstance(operand, Reg):
            return names[operand]
        if isinstance(operand, Vec):
            return Vec([names[item] if isinstance(item, Reg) else item for item in operand.items])
        if isinstance(operand, Addr):
            base = names[operand.base] if isinstance(operand.base, Reg) else operand.base
            coords = [self._operand(item) for item in operand.coords] if operand.coords is not None else None
            return Addr(base, operand.offset, coords)
        if isinstance(operand, Not):
            return Not(names[operand.reg])
        if isinstance(operand, Pair):
            first = names[operand.first] if isinstance(operand.first, Reg) else operand.first
            second = names[operand.second] if isinstance(operand.second, Reg) else operand.second
            return Pair(first, second)
        return operand

    # --- edges

    def _terminator(self, block: Block, following: Block | None) -> None:
        term = self.s.term(block)
        if not term.edges:
            self.body.append(self.flow.leave(term.loc))
        elif len(term.edges) == 1:
            self._edge(term.edges[0], self._copies(block, term.edges[0]), following, term.loc)
        elif len(term.edges) == 2 and term.cond is not None:
            self._fork(block, term, self.names[term.cond], following)
        else:
            condition = "a" if term.cond else "no"
            raise InternalError(f"a block ends in {len(term.edges)} edges and {condition} condition", term.loc)

    def _edge(self, edge: Edge, copies: list[tuple[Reg, Reg | Imm]], following: Block | None, loc: Loc | None) -> None:
        """The copies of an edge, then the jump unless the target comes next."""
        self._parallel(copies, loc)
        if edge.block is not following:
            self.body.append(self.flow.branch(self._label(edge.block), True, loc))

    def _fork(self, block: Block, term: Terminator, cond: Reg, following: Block | None) -> None:
        """A branch on `cond`. An edge with copies cannot be the taken one: its copies stand behind the branch."""
        flow = self.flow
        first, second = term.edges
        first_copies, second_copies = self._copies(block, first), self._copies(block, second)
        if not first_copies and (first.block is not following or second_copies):
            self.body.append(flow.branch(self._label(first.block), term.uniform, term.loc, cond))
            self._edge(second, second_copies, following, term.loc)
        elif not second_copies:
            self.body.append(flow.branch(self._label(second.block), term.uniform, term.loc, cond, True))
            self._edge(first, first_copies, following, term.loc)
        else:
            self.extra += 1
            other = f"{self._label(block)}_else{self.extra}"
            self.body.append(flow.branch(other, term.uniform, term.loc, cond, True))
            self._edge(first, first_copies, None, term.loc)
            self.body.append(Label(other))
            self._edge(second, second_copies, following, term.loc)

    def _copies(self, block: Block, edge: Edge) -> list[tuple[Reg, Reg | Imm]]:
        s = self.s
        back = s.order[id(edge.block)] <= s.order[id(block)]
        copies: list[tuple[Reg, Reg | Imm]] = []
        for param, arg in zip(edge.block.params, edge.args, strict=True):
            if param in s.alias:
                continue
            value = s.value(arg)
            dst, src = self.names[param], self._source(value)
            if dst is src:
                continue
            if not back or not isinstance(value, Reg) or value in self.settled:
                pass
            elif s.find(s.number[value]) in s.accumulators:
                raise CompilationError(
                    "accumulator-permutation",
                    "this loop carries an accumulator that async_dot still writes into the place of another: registers in flight cannot move",
                    s.term(block).loc or UNKNOWN,
                    hint="write out as many trips in the loop's body as bring each accumulator back to its own name, "
                    "or let ml.async_dot_wait(0, ...) finish the products before the names change",
                )
            copies.append((dst, src))
        return copies

    def _parallel(self, copies: list[tuple[Reg, Reg | Imm]], loc: Loc | None) -> None:
        """Emit copies that happen at once: first those whose target nobody reads; a cycle goes through a temporary."""
        pending: list[tuple[Reg, Reg | Imm]] = list(copies)
        while pending:
            sources = {pair[1] for pair in pending if isinstance(pair[1], Reg)}
            ready = [(dst, src) for dst, src in pending if dst not in sources]
            if ready:
                for dst, src in ready:
                    self.body.append(self.flow.move(dst, src, loc))
                pending = [pair for pair in pending if pair[0] in sources]
                continue
            blocked = pending[0][0]
            temp = Reg(blocked.cls, blocked.hint)
            self.body.append(self.flow.move(temp, blocked, loc))
            pending = [(dst, temp if src is blocked else src) for dst, src in pending]

    # --- tidying

    def _drop_unused_labels(self) -> None:
        used = {
            operand.name
            for item in self.body
            if isinstance(item, Inst)
            for operand in item.operands
            if isinstance(operand, LabelRef)
        }
        self.out.body = [i for i in self.body if not isinstance(i, Label) or i.name in used]

    def _collect_regs(self) -> None:
        seen: dict[Reg, None] = {}
        for item in self.out.body:
            if isinstance(item, Inst):
                for operand in item.operands:
                    seen.update(dict.fromkeys(operand_regs(operand)))
                if item.guard is not None:
                    seen[item.guard] = None
        self.out.regs = list(seen)
