"""Two f32 operations as one: ``v_pk_add_f32``, ``v_pk_mul_f32`` and ``v_pk_fma_f32`` work on two registers side by side in one issue.

Owns the choice of pairs. Two like operations of a block become one where their operands lie side by side without moves: neighbours in a
tuple (wide loads, sums of matrix products, other pairs), one value for both (a scalar, a constant, a vector register), or values that
may be placed side by side, because nothing else wants them elsewhere. Which value goes beside which is settled once for the whole
function: a value of a loop and what it is in the next trip go the same way. Where values are gathered in tuples, that decides.
Results are what the single operations give: the packed ones round, keep denormals and treat NaN alike.

Assumes a prepared function (`prepare`); changes it. Sources of the forms: CDNA3 ISA, section 6.6, and what LLVM's assembler takes.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.isa import inline
from mimw.codegen.amdgcn.registers import shape
from mimw.codegen.amdgcn.ssa.pair_order import Item, Order
from mimw.codegen.machine import Block, Function, Imm, Inst, Not, Operand, Reg, Symbol, read, written

PACKED = {
    "v_add_f32": "v_pk_add_f32", "v_sub_f32": "v_pk_add_f32", "v_subrev_f32": "v_pk_add_f32",
    "v_mul_f32": "v_pk_mul_f32", "v_fma_f32": "v_pk_fma_f32",
}  # fmt: skip
_NEGATED = {"v_sub_f32": 1, "v_subrev_f32": 0}
"""Which source a difference takes with the other sign."""


def pair_floats(fn: Function) -> int:
    """Make packed operations of single ones; returns how many."""
    if sum(1 for block in fn.blocks for inst in block.insts if _is_candidate(inst)) < 2:
        return 0
    places = Places(fn)
    return sum(_in_block(block, places) for block in fn.blocks)


def _is_candidate(inst: Item) -> bool:
    if not isinstance(inst, Inst) or inst.opcode not in PACKED or inst.guard is not None or inst.tied_in is not None:
        return False
    return not isinstance(inst.operands[-1], Symbol)


class Places:
    """Which values lie side by side: in tuples, or by agreement.

    Values that come to be one register around a loop agree together: `root` names them. `beside` is the other root and which of the two
    is the lower one (0) or the higher (1).
    """

    def __init__(self, fn: Function) -> None:
        self.part: dict[Reg, tuple[Reg, int]] = {}
        self.parts: dict[tuple[Reg, int], list[Reg]] = {}
        self.users: dict[Reg, list[Inst]] = {}
        self._up: dict[Reg, Reg] = {}
        self.members: dict[Reg, list[Reg]] = {}
        self.beside: dict[Reg, tuple[Reg, int]] = {}
        self._alone: set[Reg] = set()
        packs: list[Inst] = []
        for block in fn.blocks:
            for inst in block.insts:
                if isinstance(inst, Inst):
                    if inst.opcode == "p_part":
                        self._note_part(inst)
                    elif inst.opcode == "p_pack":
                        packs.append(inst)
                    elif _is_candidate(inst):
                        for reg in dict.fromkeys(read(inst)):
                            self.users.setdefault(reg, []).append(inst)
        self._join_loops(fn)
        for inst in packs:
            self._note_pack(inst)

    def _note_part(self, inst: Inst) -> None:
        dst, src, index = inst.operands
        if isinstance(dst, Reg) and isinstance(src, Reg) and isinstance(index, Imm) and dst.cls == "v32":
            self.set_part(dst, src, index.value)

    def set_part(self, reg: Reg, source: Reg, index: int) -> None:
        """`reg` is a register of the tuple `source`."""
        self.part[reg] = (source, index)
        self.parts.setdefault((source, index), []).append(reg)

    def _join_loops(self, fn: Function) -> None:
        for block in fn.blocks:
            assert block.term is not None
            for edge in block.term.edges:
                for param, arg in zip(edge.block.params, edge.args, strict=True):
                    if isinstance(arg, Reg) and param.cls == "v32" and arg.cls == "v32":
                        a, b = self.root(param), self.root(arg)
                        if a is not b:
                            self._up[b] = a
                            self.members.setdefault(a, [a]).extend(self.members.pop(b, [b]))

    def root(self, reg: Reg) -> Reg:
        """The name of the values that share a register with `reg`."""
        while reg in self._up:
            reg = self._up[reg]
        return reg

    def _note_pack(self, inst: Inst) -> None:
        at = 0
        items: dict[int, Operand] = {}
        for operand in inst.operands[1:]:
            items[at] = operand
            at += shape(operand.cls)[1] if isinstance(operand, Reg) else 1
        for i, low in items.items():
            if i % 2 == 0:
                high = items.get(i + 1)
                if _single(low) and _single(high):
                    self.agree(low, high)  # type: ignore[arg-type]
                else:
                    self._alone.update(self.root(x) for x in (low, high) if isinstance(x, Reg) and x.cls == "v32")

    def agree(self, low: Reg, high: Reg) -> bool:
        """Place two values side by side, if nothing speaks against it; says whether they are."""
        if not self.may_agree(low, high):
            return False
        a, b = self.root(low), self.root(high)
        self.beside[a], self.beside[b] = (b, 0), (a, 1)
        return True

    def may_agree(self, low: Reg, high: Reg) -> bool:
        """Whether two values are side by side, or may be placed so."""
        if low in self.part or high in self.part:
            return False
        a, b = self.root(low), self.root(high)
        if a in self.beside or b in self.beside:
            return self.beside.get(a) == (b, 0)
        return a is not b and a not in self._alone and b not in self._alone

    def neighbours(self, reg: Reg) -> list[Reg]:
        """The values that lie, or may come to lie, beside `reg`."""
        found = self.part.get(reg)
        if found is not None:
            return self.parts.get((found[0], found[1] ^ 1), [])
        other = self.beside.get(self.root(reg))
        return [] if other is None else self.members.get(other[0], [other[0]])

    def is_low(self, reg: Reg) -> bool:
        """Whether a value is, as far as it is settled, the lower of two."""
        found = self.part.get(reg)
        if found is not None:
            return found[1] % 2 == 0
        other = self.beside.get(self.root(reg))
        return other is None or other[1] == 0


def _single(operand: Operand | None) -> bool:
    return isinstance(operand, Reg) and operand.cls == "v32"


class Source:
    """One source of a packed operation, the values `low` and `high` of it with their signs."""

    __slots__ = ("high", "low", "minus_high", "minus_low")

    def __init__(self, low: Operand, high: Operand, minus: bool) -> None:
        self.minus_low, self.minus_high = minus, minus
        if isinstance(low, Not):
            low, self.minus_low = low.reg, not minus
        if isinstance(high, Not):
            high, self.minus_high = high.reg, not minus
        self.low = low
        self.high = high

    def fits(self, places: Places) -> bool:
        """Whether the two lie side by side, or may."""
        low, high = self.low, self.high
        if isinstance(low, Imm) and isinstance(high, Imm):
            return low.value == high.value and low.cls == high.cls
        if not isinstance(low, Reg) or not isinstance(high, Reg):
            return False
        if low is high:
            return True
        if low.cls != "v32" or high.cls != "v32":
            return False
        a, b = places.part.get(low), places.part.get(high)
        if a is not None and b is not None:
            return a[0] is b[0] and a[1] // 2 == b[1] // 2
        return places.may_agree(low, high) or places.beside.get(places.root(low)) == (places.root(high), 1)


def _sources(low: Inst, high: Inst) -> list[Source]:
    minus = _NEGATED.get(low.opcode)
    return [Source(a, b, i == minus) for i, (a, b) in enumerate(zip(low.operands[1:], high.operands[1:], strict=True))]


class _Chooser:
    """Finds the pairs of one block."""

    def __init__(self, block: Block, places: Places) -> None:
        self.places = places
        self.order = Order(block)
        self.open = {id(inst): inst for inst in block.insts if isinstance(inst, Inst) and _is_candidate(inst)}
        self.found = 0

    def run(self) -> int:
        """Results that are gathered choose first, then operands, then what just looks alike."""
        for inst in reversed(list(self.open.values())):
            if id(inst) in self.open:
                self._by_result(inst)
        for inst in list(self.open.values()):
            if id(inst) in self.open:
                self._by_operands(inst)
        for inst in list(self.open.values()):
            if id(inst) in self.open and not self._by_operands(inst):
                self._by_looks(inst)
        return self.found

    def _by_result(self, inst: Inst) -> bool:
        result = written(inst)[0]
        for other in self.places.neighbours(result):
            maker = self.order.maker.get(other)
            if maker is not None and self._try(inst, maker, self.places.is_low(result)):
                return True
        return False

    def _by_operands(self, inst: Inst) -> bool:
        for reg in read(inst):
            for other in self.places.neighbours(reg):
                for user in self.places.users.get(other, ()):
                    if self._try(inst, user, self.places.is_low(reg)):
                        return True
        return False

    def _by_looks(self, inst: Inst) -> bool:
        """The next one that does the same, if it is not far."""
        tried = 0
        place = self.order.at[id(inst)]
        for other in self.open.values():
            if other.opcode == inst.opcode and other is not inst and self.order.at[id(other)] >= place:
                if self._try(inst, other, True):
                    return True
                tried += 1
                if tried == 2:
                    return False
        return False

    def _try(self, inst: Inst, other: Inst, first_is_low: bool) -> bool:
        """Pair two operations if they are open and everything fits."""
        if id(inst) not in self.open or id(other) not in self.open or inst is other or inst.opcode != other.opcode:
            return False
        low, high = (inst, other) if first_is_low else (other, inst)
        places = self.places
        sources = _sources(low, high)
        results = written(low)[0], written(high)[0]
        if not all(source.fits(places) for source in sources) or not places.may_agree(*results):
            return False
        if not self.order.join(low, high):
            return False
        for source in sources:
            if isinstance(source.low, Reg) and isinstance(source.high, Reg) and source.low is not source.high:
                places.agree(source.low, source.high)
        places.agree(*results)
        del self.open[id(low)], self.open[id(high)]
        self.found += 1
        return True


def _in_block(block: Block, places: Places) -> int:
    chooser = _Chooser(block, places)
    if chooser.run():
        chooser.order.write(_Maker(places).packed)
    return chooser.found


class _Maker:
    """Writes the packed operations of one block; the pairs of registers they read are put together once."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.made: dict[object, Reg] = {}

    def packed(self, first: Inst, second: Inst) -> list[Item]:
        """The instructions that stand for two."""
        low, high = first, second
        if self.places.beside.get(self.places.root(written(first)[0]), (None, 0))[1]:
            low, high = second, first
        out: list[Item] = []
        operands: list[Operand] = []
        picks: list[tuple[int, int]] = []
        sources = _sources(low, high)
        for source in sources:
            operand, pick = self._source(source, out, low)
            operands.append(operand)
            picks.append(pick)
        result = Reg("v64", written(low)[0].hint)
        modifiers = _modifiers(picks, sources)
        out.append(Inst(PACKED[low.opcode], [result, *operands, *modifiers], 1, low.loc))
        for i, inst in enumerate((low, high)):
            reg = written(inst)[0]
            out.append(Inst("p_part", [reg, result, Imm(i)], 1, inst.loc))
            self.places.set_part(reg, result, i)
        return out

    def _source(self, source: Source, out: list[Item], like: Inst) -> tuple[Operand, tuple[int, int]]:
        """The 64-bit operand, and which register of it the low and the high result take."""
        low, high = source.low, source.high
        if isinstance(low, Imm):
            return (low if inline(low) else self._twice(low, out, like)), (0, 0)
        assert isinstance(low, Reg) and isinstance(high, Reg)
        place, other = self.places.part.get(low), self.places.part.get(high)
        if place is not None and other is not None and place[0] is other[0] and place[1] // 2 == other[1] // 2:
            return self._part(place[0], place[1] & ~1, out, like), (place[1] & 1, other[1] & 1)
        if low is high:
            return self._twice(low, out, like), (0, 0)
        if self.places.is_low(low):
            return self._pair(low, high, out, like), (0, 1)
        return self._pair(high, low, out, like), (1, 0)

    def _part(self, source: Reg, index: int, out: list[Item], like: Inst) -> Reg:
        if source.cls == "v64":
            return source
        found = self.made.get((source, index))
        if found is None:
            found = self.made[source, index] = Reg("v64", source.hint)
            out.append(Inst("p_part", [found, source, Imm(index)], 1, like.loc))
        return found

    def _pair(self, low: Reg, high: Reg, out: list[Item], like: Inst) -> Reg:
        found = self.made.get((low, high))
        if found is None:
            found = self.made[low, high] = Reg("v64", low.hint)
            out.append(Inst("p_pack", [found, low, high], 1, like.loc))
        return found

    def _twice(self, value: Reg | Imm, out: list[Item], like: Inst) -> Reg:
        """A pair whose low register is `value`; nobody looks at the high one."""
        key = value if isinstance(value, Reg) else (value.value, value.cls)
        found = self.made.get(key)
        if found is None:
            file = "v" if isinstance(value, Reg) and value.cls == "v32" else "s"
            nothing = Reg(f"{file}32")
            found = self.made[key] = Reg(f"{file}64", value.hint if isinstance(value, Reg) else "")
            out.append(Inst("p_undef", [nothing], 1, like.loc))
            low = value if isinstance(value, Reg) else Imm(value.value)
            out.append(Inst("p_pack", [found, low, nothing], 1, like.loc))
        return found


def _modifiers(picks: list[tuple[int, int]], sources: list[Source]) -> list[Operand]:
    """What differs from the plain form, which takes low with low and high with high."""
    columns: list[tuple[str, list[int], int]] = [
        ("op_sel", [low for low, _ in picks], 0),
        ("op_sel_hi", [high for _, high in picks], 1),
        ("neg_lo", [int(s.minus_low) for s in sources], 0),
        ("neg_hi", [int(s.minus_high) for s in sources], 0),
    ]
    return [
        Symbol(f"{name}:[{','.join(map(str, bits))}]")
        for name, bits, plain in columns
        if any(bit != plain for bit in bits)
    ]
