"""The AMDGCN instruction table: what a mnemonic takes, which unit runs it, what it reads and writes beside its operands.

Owns `Slot`, `Row`, `resolve(mnemonic) -> Row`, `check(inst, target)`. The rows are text in `isa_table`, expanded once.

**How an instruction is held.** `Inst.opcode` is the mnemonic without ``_e32`` and ``_e64`` (the assembler picks the encoding); operands
stand in printed order, results first. Registers have the classes of `registers.shape`: s32 s64 .. v32 v64 .., `mask` (a pair of scalar
registers with one bit a lane), a32 ... A negated floating-point source is `Not(reg)`, printed ``-v1``. Constants are `Imm`: integers are
what the instruction sees, sign-extended (``Imm(-1)``); class "f32" holds the bits of a float, "f64" those of a double. Modifiers follow
the operands as `Symbol`: ``Symbol("offset:16")``, ``Symbol("nt")``; so does ``off`` in the place of an address. A result that keeps part
of its old bits (`Row.partial`) has `tied_in`. Two opcodes differ from what is printed: ``global_atomic_*_rtn`` prints ``sc0``,
``buffer_load_*_lds`` prints ``lds`` (`Row.text`, `Row.suffix`).

**Constants.** `inline` says which constants cost nothing (-16 to 64, some floats). Another one, or a scalar register, takes the constant
bus of a vector instruction: one of either in all (`check`), and the 32-bit literal only in the short encodings (`Row.literals`), first source.

**Pseudo instructions** (unit "pseudo") have no encoding: `finish` replaces them.

    p_entry d, s[0:1]        what a physical register holds when the wave starts; in the first block only
    p_undef d                a value that nobody looks at
    p_copy d, s              a move of any size between any files (vector to scalar: of the first lane)
    p_pack d, a, b, ..       the registers (and constants) side by side, first lowest; s items may stand in a v tuple
    p_part d, s, #i          as many registers as d has, from register i of s on
    p_cmp_<how>_<type> m, a, b         scalar comparison as a lane mask, all ones or 0
    p_select_b32 d, a, b, m  m ? a : b, for a mask that is all ones or 0
    p_add_u64, p_sub_u64     of scalar pairs
    p_div_fmas d, a, b, c, m v_div_fmas with m in VCC
    p_global_load_lds_* addr, base, x, #n   with M0 = x + n; the same for p_buffer_load_lds_*
    p_wait_vm #n, p_wait_lgkm #n          wait until at most n operations of that counter are outstanding
    p_commit_group, p_wait_group #n      groups of loads to shared memory: end one, wait for all but the latest n (`waitcnt`)
    p_end_copy #i, p_wait_copy #i         the loads to shared memory since the last end are copy i (too); wait for copy i
"""

from __future__ import annotations

import re
from functools import cache

from mimw.codegen.amdgcn.isa_table import MODIFIERS, ROWS
from mimw.codegen.machine import Imm, Inst, LabelRef, Not, Operand, Reg, Symbol
from mimw.diagnostics import InternalError
from mimw.target import Target


class UnknownInstruction(InternalError):
    """The instruction table has no such mnemonic."""


class Slot:
    """One operand: `kind` and width in bits.

    Kinds: "v" vector register, "V" vector register, scalar register or constant, "s" scalar register, "S" scalar register or constant,
    "a" accumulation register, "m" lane mask, "M" the same or a constant, "@" vector address or ``off``, "o" scalar registers or ``off``, "#" number,
    "T" text, "L" label, "?" a register of any class, "..." any number of any. `agpr`: an accumulation register will do as well.
    """

    __slots__ = ("agpr", "bits", "kind", "result")

    def __init__(self, kind: str, bits: int, result: bool, agpr: bool) -> None:
        self.kind = kind
        self.bits = bits
        self.result = result
        self.agpr = agpr

    def __repr__(self) -> str:
        return f"{'=' if self.result else ''}{self.kind}{self.bits or ''}{'a' if self.agpr else ''}"


class Row:
    """One mnemonic.

    `slots` in printed order, the first `num_results` written. `unit`: salu valu trans mfma vmem ds smem branch message pseudo. `counter`: what
    it raises until it is done ("vm", "lgkm", ""). `encoding` as in `isa_table`. `literals`: a 32-bit literal may stand in the first source.
    `modifiers`: names that may follow. `reads`, `writes`: memory. `implicit_reads`, `implicit_writes`: of {"scc", "vcc", "exec", "m0"}
    (every vector instruction reads EXEC besides). `partial`: results keep old bits. `removable`: nobody notices when it goes with
    its results. `open`: any number of operands. `passes`: of an MFMA, on gfx942 and on gfx950. `only`: the one target that has it, or "".
    """

    __slots__ = (
        "counter",
        "encoding",
        "implicit_reads",
        "implicit_writes",
        "literals",
        "modifiers",
        "name",
        "num_results",
        "only",
        "open",
        "partial",
        "passes",
        "passes950",
        "reads",
        "removable",
        "slots",
        "suffix",
        "text",
        "unit",
        "writes",
    )

    def __init__(self, name: str, slots: tuple[Slot, ...], flags: list[str]) -> None:
        self.name = name
        self.slots = slots
        self.num_results = sum(1 for s in slots if s.result)
        self.open = any(s.kind == "..." for s in slots)
        self.encoding = flags[0]
        words = set(flags[1:])
        self.unit = _unit(name, self.encoding, words)
        self.counter = {"vmem": "vm", "ds": "lgkm", "smem": "lgkm", "message": "lgkm"}.get(self.unit, "")
        self.literals = self.encoding in ("sop1", "sop2", "sopc", "vop1", "vop2")
        self.modifiers = frozenset(w for f in flags for w in MODIFIERS.get(f, "").split())
        self.reads, self.writes = "r" in words, "w" in words
        self.implicit_reads = frozenset(w[1:] for w in words if w[0] == "?")
        self.implicit_writes = frozenset(words & {"scc", "vcc", "exec", "m0"})
        self.partial = "part" in words
        self.removable = not self.writes and "keep" not in words
        self.passes = next((int(w[1:]) for w in words if re.fullmatch(r"p\d+", w)), 0)
        self.passes950 = next((int(w[1:]) for w in words if re.fullmatch(r"f\d+", w)), self.passes)
        self.only = next((f"gfx{w[4:]}" for w in words if w.startswith("only")), "")
        self.text, self.suffix = name, ""
        for ending, suffix, kind in (("_rtn", "sc0", "global_atomic"), ("_lds", "lds", "buffer_load")):
            if name.startswith(kind) and name.endswith(ending):
                self.text, self.suffix = name.removesuffix(ending), suffix

    def __repr__(self) -> str:
        return f"Row({self.name})"


def _unit(name: str, encoding: str, words: set[str]) -> str:
    if encoding == "mfma":
        return "mfma"
    if encoding.startswith("vop"):
        return "trans" if "trans" in words else "valu"
    if encoding.startswith("sop"):
        if name == "s_sendmsg":
            return "message"
        return "branch" if name in ("s_branch", "s_endpgm") or name.startswith("s_cbranch") else "salu"
    return {"mubuf": "vmem", "flat": "vmem"}.get(encoding, encoding)


def _braces(text: str) -> list[str]:
    """The words that ``a_{b,c}_d`` stands for."""
    found = re.search(r"\{([^{}]*)\}", text)
    if found is None:
        return [text]
    return [w for choice in found[1].split(",") for w in _braces(text[: found.start()] + choice + text[found.end() :])]


@cache
def _slots(text: str) -> tuple[Slot, ...]:
    return tuple(_slot(word.strip()) for word in text.split(",") if word.strip())


def _slot(text: str) -> Slot:
    result = text.startswith("=")
    text = text.removeprefix("=")
    agpr = len(text) > 1 and text.endswith("a")
    text = text[:-1] if agpr else text
    kind = "..." if text == "..." else text[0]
    return Slot(kind, int(text[1:]) if text[1:].isdigit() else 64 if kind in "mM" else 0, result, agpr)


@cache
def rows() -> dict[str, Row]:
    """The whole table: mnemonic -> row."""
    found: dict[str, Row] = {}
    for line in ROWS.splitlines():
        if not line or line.startswith("#"):
            continue
        names, operands, flags = (part.strip() for part in line.split(";"))
        for name in _braces(names):
            found[name] = Row(name, _slots(operands), flags.split())
    return found


def resolve(mnemonic: str) -> Row:
    """The row of a mnemonic; `UnknownInstruction` when the table has none."""
    row = rows().get(mnemonic)
    if row is None:
        raise UnknownInstruction(f"no AMDGCN instruction is called {mnemonic!r}")
    return row


def supports(row: Row, target: Target) -> bool:
    """Whether the machine has the instruction."""
    return row.only in ("", target.name)


# --- constants

_INLINE_F32 = frozenset(
    (0x3F000000, 0xBF000000, 0x3F800000, 0xBF800000, 0x40000000, 0xC0000000, 0x40800000, 0xC0800000, 0x3E22F983)
)
_INLINE_F64 = frozenset(x << 48 for x in (0x3FE0, 0xBFE0, 0x3FF0, 0xBFF0, 0x4000, 0xC000, 0x4010, 0xC010))
_INLINE_F16 = frozenset((0x3800, 0xB800, 0x3C00, 0xBC00, 0x4000, 0xC000, 0x4400, 0xC400, 0x3118))


def inline(value: Imm) -> bool:
    """Whether a constant is part of the instruction word: -16 to 64, and +-0.5, 1, 2, 4 and 1/(2 pi) of the class it is of."""
    if value.cls == "f32":
        return value.value in _INLINE_F32 or 0 <= value.value <= 64 or value.value >= 0xFFFFFFF0
    if value.cls == "f64":
        return value.value in _INLINE_F64 or 0 <= value.value <= 64
    if value.cls == "f16":
        return value.value in _INLINE_F16 or 0 <= value.value <= 64
    return -16 <= value.value <= 64


# --- checking an instruction


def modifier_name(operand: Symbol) -> str:
    """``offset`` of ``offset:16``."""
    return operand.name.partition(":")[0]


def check(inst: Inst, target: Target, flat: bool = False) -> None:
    """Raise `InternalError` when the operands of `inst` do not fit its row, or `target` has no such instruction. In `flat` bodies
    there are no ties any more, and registers are physical ones."""
    row = resolve(inst.opcode)
    if not supports(row, target):
        raise InternalError(f"{target.name} has no {inst.opcode}", inst.loc)
    if inst.num_results != row.num_results:
        raise InternalError(f"{inst.opcode} has {row.num_results} results, not {inst.num_results}", inst.loc)
    if row.partial and not flat and inst.tied_in is None:
        raise InternalError(f"{inst.opcode} keeps bits of its result, which is tied to nothing", inst.loc)
    operands = _without_modifiers(row, inst)
    if row.open:
        return
    if len(operands) != len(row.slots) or not all(
        fits(slot, operand) for slot, operand in zip(row.slots, operands, strict=True)
    ):
        raise InternalError(
            f"operands of {inst.opcode} are {_describe(operands)}, the row takes {[*row.slots]}", inst.loc
        )
    if row.unit in ("valu", "trans", "mfma"):
        _check_bus(row, operands, inst)


def _without_modifiers(row: Row, inst: Inst) -> list[Operand]:
    operands = inst.operands
    count = len(operands)
    if row.open or not count or type(operands[-1]) is not Symbol:
        return operands
    while count > len(row.slots) or (count and row.slots[count - 1].kind != "T"):
        operand = operands[count - 1]
        if not isinstance(operand, Symbol) or operand.name == "off":
            break
        name = modifier_name(operand)
        if name not in row.modifiers:
            raise InternalError(f"{inst.opcode} takes no modifier {name}", inst.loc)
        count -= 1
    return operands[:count]


def fits(slot: Slot, operand: Operand) -> bool:
    """Whether an operand may stand in a slot, as far as its own kind goes."""
    if type(operand) is Reg:
        return fits_register(slot, operand.cls)
    kind = slot.kind
    if isinstance(operand, Not):
        return kind in "vV" and fits(slot, operand.reg)
    if isinstance(operand, Imm):
        return kind in "VS#M?"
    if isinstance(operand, LabelRef):
        return kind == "L"
    if isinstance(operand, Symbol):
        return kind == "T" or (kind in "@o" and operand.name == "off")
    return False


@cache
def _fits_class(kind: str, bits: int, agpr: bool, cls: str) -> bool:
    return _fits(Slot(kind, bits, False, agpr), cls)


def fits_register(slot: Slot, cls: str) -> bool:
    """Whether a register of a class may stand in a slot."""
    return _fits_class(slot.kind, slot.bits, slot.agpr, cls)


def _fits(slot: Slot, cls: str) -> bool:
    kind = slot.kind
    if kind == "?" or not cls:  # a special register by its name
        return True
    if cls == "mask":
        return kind in "mM" or (kind in "sSo" and slot.bits == 64)
    file, bits = cls[0], int(cls[1:])
    if kind == "@":
        return file == "v" and bits in (32, 64)
    if kind in "mM":
        return file == "s" and bits == 64
    if bits != slot.bits:
        return False
    if file == "a":
        return slot.agpr or kind == "a"
    return (file == "s" and kind in "sSVo") or (file == "v" and kind in "vV")


def _check_bus(row: Row, operands: list[Operand], inst: Inst) -> None:
    """At most one scalar register or literal among the sources of a vector instruction."""
    scalars: set[int] = set()
    literals = 0
    for i, (slot, operand) in enumerate(zip(row.slots, operands, strict=True)):
        if slot.result or slot.kind == "#":
            continue
        reg = operand.reg if isinstance(operand, Not) else operand
        if isinstance(reg, Reg) and reg.cls[:1] in ("s", "m"):
            scalars.add(id(reg))
        elif isinstance(operand, Imm) and not inline(operand):
            literals += 1
            if not row.literals or i != row.num_results:
                raise InternalError(f"{inst.opcode} takes no literal there: {operand!r}", inst.loc)
    if len(scalars) + literals > 1:
        raise InternalError(f"{inst.opcode} reads {len(scalars)} scalars and {literals} literals", inst.loc)


def _describe(operands: list[Operand]) -> str:
    return "(" + ", ".join(o.cls if isinstance(o, Reg) else repr(o) for o in operands) + ")"
