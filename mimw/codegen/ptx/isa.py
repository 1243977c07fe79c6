"""The PTX instruction table: what an opcode is, what it takes, which assembler version and machine it needs.

Owns `Form` and `resolve(opcode) -> Form`, `check(inst, target)`, the sizes of PTX types. The rows are text in
`isa_table`; a row is compiled when its mnemonic is first asked for, an opcode is resolved once and kept. Knows
nothing of lowerings, of the printer or of what an instruction computes.
"""

from __future__ import annotations

from mimw.codegen.machine import Addr, Imm, Inst, LabelRef, Not, Operand, Pair, Reg, Sink, Special, Symbol, Vec
from mimw.codegen.ptx.isa_table import ATOMIC_ORDER, MODIFIER_NEEDS, MODIFIER_ONLY, ROWS, SETS
from mimw.codegen.ptx.operands import BITS, FLOATS, SPECIAL, Signature, Slot, parse_signature, register_class, type_bits
from mimw.diagnostics import InternalError
from mimw.target import Target

# Effects of an instruction: a set of bits. 0 is a pure computation.
READ, WRITE, BARRIER, ASYNC, CONTROL, PINNED = 1, 2, 4, 8, 16, 32
_EFFECTS = {"r": READ, "w": WRITE, "b": BARRIER, "a": ASYNC, "c": CONTROL, "v": PINNED}


class UnknownInstruction(InternalError):
    """The instruction table has no such opcode."""


class Form:
    """One opcode, resolved.

    `mnemonic` (``cp.async.bulk.tensor``) and `modifiers` (all that follows, in the order of the row) make the opcode;
    `types` are the modifiers that name types; `captures` what the row remembered by name (T, D, A, n, ...).
    `signatures` are the operand lists it may take, `operands` the first of them. `num_results` operands are written.
    `ptx` and `arch` are the smallest version and arch; `only`, when not empty, the archs whose "a" target has it.
    `effects` is a set of the bits above. `others` are later extensions of the same opcode (a third operand of max,
    say), with needs of their own.
    """

    __slots__ = (
        "arch",
        "captures",
        "effects",
        "mnemonic",
        "modifiers",
        "num_results",
        "only",
        "opcode",
        "operands",
        "others",
        "ptx",
        "signatures",
        "types",
    )

    def __init__(
        self,
        opcode: str,
        mnemonic: str,
        modifiers: tuple[str, ...],
        captures: dict[str, str],
        signatures: tuple[Signature, ...],
        effects: int,
        ptx: tuple[int, int],
        arch: int,
        only: tuple[int, ...],
    ) -> None:
        self.opcode = opcode
        self.mnemonic = mnemonic
        self.modifiers = modifiers
        self.types = tuple(m for m in modifiers if m in BITS)
        self.captures = captures
        self.signatures = signatures
        self.operands = signatures[0]
        self.num_results = sum(1 for s in self.operands if s.result)
        self.effects = effects
        self.ptx = ptx
        self.arch = arch
        self.only = only
        self.others: list[Form] = []

    @property
    def pure(self) -> bool:
        """Whether it computes from its operands alone, so that it may be dropped when its results are unused."""
        return self.effects == 0

    @property
    def removable(self) -> bool:
        """Pure, or a plain read: nobody notices when it goes."""
        return self.effects & ~READ == 0

    def __repr__(self) -> str:
        return f"Form({self.opcode})"


# --- rows


class _ShapeSet:
    """The modifiers that are matrix shapes (``m64n128k16``)."""

    def __contains__(self, token: str) -> bool:
        return token[0] == "m" and token[1:2].isdigit() and "n" in token and "k" in token


class _Step:
    """One modifier position of a row: the choices, the name it is remembered under, how often it may stand."""

    __slots__ = ("choices", "name", "optional", "repeat")

    def __init__(self, text: str) -> None:
        self.repeat = text.startswith("*")
        text = text.removeprefix("*")
        head, sep, rest = text.partition(":")
        self.name = head if sep and not rest.startswith(":") and len(head) <= 5 else ""
        text = rest if self.name else text
        self.optional = text.endswith("?")
        self.choices: frozenset[str] | _ShapeSet = _ShapeSet() if text == "SHAPE" else _choices(text.removesuffix("?"))


def _choices(text: str) -> frozenset[str]:
    found: set[str] = set()
    for word in text.split("|"):
        found.update(SETS[word].split("|") if word in SETS else (word,))
    return frozenset(found)


class _Row:
    """One compiled line of the table."""

    __slots__ = ("arch", "effects", "mnemonic", "only", "operands", "ptx", "steps")

    def __init__(self, mnemonic: str, modifiers: str, operands: str, flags: str) -> None:
        self.mnemonic = mnemonic
        self.steps = [_Step(text) for text in modifiers.split()]
        self.operands = operands
        self.effects = 0
        self.ptx = (6, 0)
        self.arch = 0
        self.only: tuple[int, ...] = ()
        for flag in flags.split():
            if flag in _EFFECTS:
                self.effects |= _EFFECTS[flag]
            elif flag.startswith("ptx"):
                major, _, minor = flag[3:].partition(".")
                self.ptx = (int(major), int(minor))
            elif flag.startswith("sm"):
                self.arch = int(flag[2:])
            elif flag.startswith("only"):
                self.only = tuple(int(a) for a in flag[4:].split(","))


def _match(steps: list[_Step], si: int, tokens: list[str], ti: int, captures: dict[str, str]) -> bool:
    """Whether tokens[ti:] is spelled by steps[si:]; fills `captures`. Backtracks over optional steps."""
    if si == len(steps):
        return ti == len(tokens)
    step = steps[si]
    here = ti < len(tokens) and tokens[ti] in step.choices
    if here and _match(steps, si if step.repeat else si + 1, tokens, ti + 1, captures):
        if step.name:
            captures[step.name] = tokens[ti]
        return True
    return (step.optional or step.repeat) and _match(steps, si + 1, tokens, ti, captures)


_lines: dict[str, list[tuple[str, str, str, str]]] = {}
_rows: dict[str, list[_Row]] = {}
_forms: dict[str, Form] = {}


def _index_lines() -> None:
    found: dict[str, list[tuple[str, str, str, str]]] = {}
    for line in ROWS.replace("\\\n", "").splitlines():
        if not line or line.startswith("#"):
            continue
        left, operands, flags = (*(part.strip() for part in line.split(";")), "", "")[:3]
        names, _, modifiers = left.partition(" ")
        for name in names.split(","):
            found.setdefault(name.partition(".")[0], []).append((name, modifiers, operands, flags))
    _lines.update(found)


def _rows_of(head: str) -> list[_Row]:
    if not _lines:
        _index_lines()
    rows = _rows.get(head)
    if rows is None:
        rows = [_Row(*line) for line in _lines.get(head, [])]
        rows.sort(key=lambda row: -row.mnemonic.count("."))
        _rows[head] = rows
    return rows


def resolve(opcode: str) -> Form:
    """The form of a full dotted opcode (``ld.global.v4.b32``); `UnknownInstruction` when the table has none."""
    form = _forms.get(opcode)
    if form is None:
        form = _forms[opcode] = _resolve(opcode)
    return form


def _atomic_rank(token: str) -> int:
    return ATOMIC_ORDER.index(token) if token in ATOMIC_ORDER else len(ATOMIC_ORDER)  # types come last, in their order


def _resolve(opcode: str) -> Form:
    head = opcode.partition(".")[0]
    found: list[Form] = []
    reason = "a modifier is wrong, missing or out of order"
    for row in _rows_of(head):
        if opcode != row.mnemonic and not opcode.startswith(row.mnemonic + "."):
            continue
        tokens = opcode[len(row.mnemonic) + 1 :].split(".") if len(opcode) > len(row.mnemonic) else []
        if head in ("atom", "red") and row.mnemonic == head:
            tokens.sort(key=_atomic_rank)
        captures: dict[str, str] = {}
        if _match(row.steps, 0, tokens, 0, captures):
            try:
                found.append(_make_form(opcode, row, tuple(tokens), captures))
            except ValueError as error:  # a product that does not exist
                reason = str(error)
    if found:
        found[0].others = found[1:]
        return found[0]
    rows = _rows_of(head)
    if not rows:
        raise UnknownInstruction(f"no PTX instruction is called {head!r} (opcode {opcode!r})")
    near = ", ".join(sorted({row.mnemonic for row in rows}))
    raise UnknownInstruction(f"no form of {near} is spelled {opcode!r}: {reason}")


def _make_form(opcode: str, row: _Row, modifiers: tuple[str, ...], captures: dict[str, str]) -> Form:
    ptx, arch, only = row.ptx, row.arch, row.only
    for modifier in modifiers:
        need = MODIFIER_NEEDS.get(modifier)
        if need is not None:
            ptx, arch = max(ptx, need[0]), max(arch, need[1])
        only = MODIFIER_ONLY.get(modifier, only)
    if row.operands.startswith("!"):
        signatures = SPECIAL[row.operands[1:]](captures, modifiers)
    else:
        signatures = tuple(parse_signature(text, captures, modifiers) for text in row.operands.split(" / "))
    effects = row.effects
    if row.mnemonic == "ld":
        effects = _load_effects(modifiers)
    return Form(opcode, row.mnemonic, modifiers, captures, signatures, effects, ptx, arch, only)


def _load_effects(modifiers: tuple[str, ...]) -> int:
    """Parameters and constants never change; a volatile, relaxed or acquire load has a reason to stay in place."""
    words = frozenset(modifiers)
    if words & {"volatile", "relaxed", "acquire", "mmio"}:
        return READ | PINNED
    return 0 if words & {"param", "param::entry", "const"} else READ


# --- checking an instruction


def check(inst: Inst, target: Target) -> None:
    """Raise `InternalError` when the operands of `inst` do not fit its form, or `target` has no such instruction."""
    form = form_of(inst)
    if not supports(form, target):
        raise InternalError(f"{target.name} has no {inst.opcode}", inst.loc)
    if inst.num_results != form.num_results:
        raise InternalError(
            f"{inst.opcode} has {form.num_results} results, the instruction says {inst.num_results}", inst.loc
        )
    if inst.guard is not None and inst.guard.cls != "pred":
        raise InternalError(f"the guard of {inst.opcode} is a {inst.guard.cls} register", inst.loc)


def form_of(inst: Inst) -> Form:
    """The form of `inst`, by its operands where an opcode has several; `InternalError` when they fit none."""
    key = (inst.opcode, *map(_kind, inst.operands))
    form = _FORMS.get(key)
    if form is None:
        form = _FORMS[key] = _find_form(inst)
    return form


_FORMS: dict[tuple[object, ...], Form] = {}
"""Forms that were found before, by opcode and kinds of operands."""


def _kind(operand: object) -> object:
    """All that `_fits` asks of an operand."""
    if isinstance(operand, Reg):
        return operand.cls
    if isinstance(operand, Vec):
        return (Vec, len(operand.items), frozenset(map(_kind, operand.items)))
    if isinstance(operand, Imm):
        return (Imm, operand.cls)
    if isinstance(operand, Addr):
        coords = None if operand.coords is None else len(operand.coords)
        return (Addr, _kind(operand.base), operand.offset == 0, coords)
    if isinstance(operand, Pair):
        return (Pair, _kind(operand.first), _kind(operand.second))
    return type(operand)


def _find_form(inst: Inst) -> Form:
    form = resolve(inst.opcode)
    for candidate in (form, *form.others):
        for signature in candidate.signatures:
            if _fits_list(signature, 0, inst.operands, 0):
                return candidate
    raise InternalError(_wanted(inst, form), inst.loc)


def misfit(inst: Inst) -> str:
    """Why the operands of `inst` fit no form of its opcode; empty when they do."""
    form = resolve(inst.opcode)
    signatures = [signature for candidate in (form, *form.others) for signature in candidate.signatures]
    if any(_fits_list(signature, 0, inst.operands, 0) for signature in signatures):
        return ""
    return _wanted(inst, form)


def _wanted(inst: Inst, form: Form) -> str:
    signatures = [signature for candidate in (form, *form.others) for signature in candidate.signatures]
    wanted = " or ".join(str(list(signature)) for signature in signatures)
    return f"operands of {inst.opcode} are {_describe(inst.operands)}, the form takes {wanted}"


def supports(form: Form, target: Target) -> bool:
    """Whether the machine has the form."""
    if target.arch < form.arch:
        return False
    return not form.only or (target.arch in form.only and target.name.endswith(("a", "f")))


def _fits_list(signature: Signature, si: int, operands: list[Operand], oi: int) -> bool:
    if si == len(signature):
        return oi == len(operands)
    slot = signature[si]
    if oi < len(operands) and _fits(slot, operands[oi]) and _fits_list(signature, si + 1, operands, oi + 1):
        return True
    return slot.optional and _fits_list(signature, si + 1, operands, oi)


def _fits(slot: Slot, operand: Operand) -> bool:
    kind = slot.kind
    if kind == "reg" or kind == "pred":
        return _fits_single(slot, operand)
    if kind == "vec":
        return (
            isinstance(operand, Vec)
            and len(operand.items) == slot.count
            and all(_fits_register(slot, item) for item in operand.items)
        )
    if kind == "addr":
        return isinstance(operand, Addr) and operand.coords is None and _fits_base(operand)
    if kind == "tmap":
        return _fits_tensor_map(slot, operand)
    if kind == "sink":
        return isinstance(operand, Sink)
    if kind == "imm":
        return isinstance(operand, Imm)
    if kind == "moved":
        return _fits_parts(slot, operand) if isinstance(operand, Vec) else _fits_register(slot, operand)
    if kind == "pointer":
        return isinstance(operand, Symbol) or any(_fits_register(Slot("reg", cls), operand) for cls in ("u32", "u64"))
    return isinstance(operand, (LabelRef, Symbol))


def _fits_single(slot: Slot, operand: Operand) -> bool:
    if isinstance(operand, Pair):
        second = operand.second
        good = isinstance(second, Sink) or second.cls == "pred"
        return slot.pair != "" and good and _fits_register(slot, operand.first)
    if slot.pair == "must":
        return False
    if isinstance(operand, Not):
        return slot.kind == "pred" and not slot.result
    if isinstance(operand, Vec):  # some compilers put braces around one register
        return slot.wide and len(operand.items) == 1 and _fits_register(slot, operand.items[0])
    return _fits_register(slot, operand)


def _fits_register(slot: Slot, operand: Operand) -> bool:
    if isinstance(operand, Reg):
        return fits_class(operand.cls, slot.cls, slot.wide)
    if isinstance(operand, Sink):
        return slot.result
    if isinstance(operand, Imm):
        return slot.imm and _fits_immediate(operand, slot.cls)
    if isinstance(operand, Special):
        return slot.imm
    return isinstance(operand, Symbol) and slot.imm and BITS[slot.cls] >= 32


def _fits_parts(slot: Slot, operand: Vec) -> bool:
    """mov packs and unpacks bits: the parts are equal and make up the whole."""
    if slot.cls[0] != "b" or slot.cls.startswith("bf") or len(operand.items) < 2:
        return False
    size = BITS[slot.cls] // len(operand.items)
    return all(
        BITS.get(item.cls) == size if isinstance(item, Reg) else slot.result if isinstance(item, Sink) else slot.imm
        for item in operand.items
    )


def _fits_immediate(operand: Imm, type_name: str) -> bool:
    """Floats want float literals, integers integer ones, bits either; 16-bit floats and packed types have none (ptxas)."""
    if type_name in ("f32", "f64"):
        return operand.cls != "int"
    if type_name in FLOATS or type_name.endswith("x2"):
        return False
    return operand.cls == "int" or type_name[0] not in "us"


def _fits_tensor_map(slot: Slot, operand: Operand) -> bool:
    """The address of a tensor map is a plain 64-bit register: ptxas refuses an offset."""
    if not isinstance(operand, Addr) or operand.coords is None or len(operand.coords) != slot.count:
        return False
    return operand.offset == 0 and isinstance(operand.base, Reg) and BITS.get(operand.base.cls) == 64


def _fits_base(operand: Addr) -> bool:
    base = operand.base
    return not isinstance(base, Reg) or BITS.get(base.cls, 0) in (32, 64)


def fits_class(cls: str, type_name: str, wide: bool = False) -> bool:
    """Whether a register of class `cls` may hold a value of `type_name`; `wide` where it may be larger (ld, st, cvt).

    Sizes agree, and a float type wants its own class or bits (section 9.4.1 of the ISA).
    """
    have, want = BITS[cls], BITS[type_name]
    if have < want or (have > want and not wide):
        return False
    if have > want:
        return cls not in FLOATS and (cls[0] == "b" or type_name not in FLOATS)
    if cls in FLOATS and (type_name[0] != "b" or type_name.startswith("bf")):
        return cls == type_name
    return not (type_name in FLOATS and cls[0] in "us")


def _describe(operands: list[Operand]) -> str:
    def one(operand: Operand) -> str:
        if isinstance(operand, Reg):
            return operand.cls
        if isinstance(operand, Vec):
            return "{" + ", ".join(one(item) for item in operand.items) + "}"
        return type(operand).__name__

    return "(" + ", ".join(one(operand) for operand in operands) + ")"


__all__ = [
    "ASYNC",
    "BARRIER",
    "CONTROL",
    "PINNED",
    "READ",
    "WRITE",
    "Form",
    "Signature",
    "Slot",
    "UnknownInstruction",
    "check",
    "fits_class",
    "form_of",
    "register_class",
    "resolve",
    "supports",
    "type_bits",
]
