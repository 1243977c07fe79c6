"""Machine IR: target instructions on virtual registers, and the operand kinds they take.

Owns `Reg` and the other operands, `Inst`, `Block`, `Function`, and the passes that need no knowledge of a target.
Lowerings build it in SSA form over basic blocks with block parameters; `leave_ssa` turns it into the flat form
(labels and instructions in one list) that the printer prints, the parser reads back and the simulator runs. Knows no
mnemonic: what an opcode takes is asked of the target's instruction table.

Objects are slotted and mutable: frozen dataclasses cost five times as much to make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Union

from mimw.diagnostics import InternalError, Loc


class Reg:
    """A virtual register. `cls` is its class (PTX: pred b8 b16 b32 b64 b128 f32 f64 ...), `hint` a name to print.

    Identity is the register; `name` is set by the parser or, before printing, by the namer.
    """

    __slots__ = ("cls", "hint", "name")

    def __init__(self, cls: str, hint: str = "", name: str = "") -> None:
        self.cls = cls
        self.hint = hint
        self.name = name

    def __repr__(self) -> str:
        return self.name or f"<{self.cls} {self.hint or hex(id(self))}>"


class Imm:
    """An immediate: an integer, or a float by its bits (`cls` "f32": printed 0fXXXXXXXX, "f64": 0dXXXXXXXXXXXXXXXX)."""

    __slots__ = ("cls", "value")

    def __init__(self, value: int, cls: str = "int") -> None:
        self.value = value
        self.cls = cls

    def __repr__(self) -> str:
        return f"Imm({self.value}, {self.cls})"


class Special:
    """A special register such as ``%tid.x`` (the name includes the percent sign)."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Symbol:
    """The address of a module-level variable, a parameter or a function (``smem``, ``k_param_0``)."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Vec:
    """Registers that one instruction takes as a tuple: ``{a, b, c, d}``. Elements: Reg, Imm or Sink."""

    __slots__ = ("items",)

    def __init__(self, items: "list[Operand]") -> None:
        self.items = items

    def __repr__(self) -> str:
        return "{" + ", ".join(repr(item) for item in self.items) + "}"


class Addr:
    """A memory operand ``[base+offset]``; with `coords`, a tensor-map operand ``[base, {c0, c1}]``."""

    __slots__ = ("base", "coords", "offset")

    def __init__(self, base: "Reg | Symbol | Imm", offset: int = 0, coords: "list[Operand] | None" = None) -> None:
        self.base = base
        self.offset = offset
        self.coords = coords

    def __repr__(self) -> str:
        return f"[{self.base!r}+{self.offset}{', ' + repr(self.coords) if self.coords else ''}]"


class Not:
    """A negated predicate source, ``!p``."""

    __slots__ = ("reg",)

    def __init__(self, reg: Reg) -> None:
        self.reg = reg

    def __repr__(self) -> str:
        return f"!{self.reg!r}"


class Pair:
    """A result with a second predicate result, ``d|p``. Either side may be `Sink`."""

    __slots__ = ("first", "second")

    def __init__(self, first: "Reg | Sink", second: "Reg | Sink") -> None:
        self.first = first
        self.second = second

    def __repr__(self) -> str:
        return f"{self.first!r}|{self.second!r}"


class Sink:
    """The result that is thrown away, ``_``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "_"


class LabelRef:
    """A branch target or a branch-target table, by name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


Operand = Union[Reg, Imm, Special, Symbol, Vec, Addr, Not, Pair, Sink, LabelRef]


class Inst:
    """One target instruction.

    `opcode` is the full dotted opcode (``"ld.global.v4.b32"``), the key into the target's instruction table.
    `operands` holds all operands in printed order; the first `num_results` of them are written. `guard` is the
    predicate in front (``@p``, ``@!p`` with `guard_neg`).

    Two lists exist in SSA form only and are never printed. `redefined`: results that have no printed place, because
    the instruction only gives known registers anew (a wait, of the accumulators that it completes). `tied_in`: the
    values that the results must share their registers with, one for one with ``operands[:num_results] + redefined``;
    a shorter list leaves the last results free, None leaves one free. A tied value is a Reg, or a Vec for a Vec; an
    Imm there becomes a move.
    """

    __slots__ = ("guard", "guard_neg", "loc", "num_results", "opcode", "operands", "redefined", "tied_in")

    def __init__(
        self,
        opcode: str,
        operands: "list[Operand]",
        num_results: int = 0,
        loc: Loc | None = None,
        guard: Reg | None = None,
        guard_neg: bool = False,
        tied_in: "Sequence[Operand | None] | None" = None,
        redefined: "list[Operand] | None" = None,
    ) -> None:
        self.opcode = opcode
        self.operands = operands
        self.num_results = num_results
        self.loc = loc
        self.guard = guard
        self.guard_neg = guard_neg
        self.tied_in = tied_in
        self.redefined = redefined

    def __repr__(self) -> str:
        guard = f"@{'!' if self.guard_neg else ''}{self.guard!r} " if self.guard else ""
        return f"{guard}{self.opcode} {', '.join(repr(o) for o in self.operands)}"


class Label:
    """A place that branches name; `pragma` lines (``nounroll``) print in front of it. Stands in flat bodies."""

    __slots__ = ("name", "pragma")

    def __init__(self, name: str, pragma: str = "") -> None:
        self.name = name
        self.pragma = pragma


class Comment:
    """A source line that prints as a comment. Stands in flat bodies and blocks; the parser drops comments."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Edge:
    """A jump to a block with the values of its parameters."""

    __slots__ = ("args", "block")

    def __init__(self, block: "Block", args: "list[Reg | Imm]") -> None:
        self.block = block
        self.args = args


class Terminator:
    """How a block ends: no edges = return; one = jump; two = `cond` ? first : second. `uniform`: all lanes of a warp
    agree.
    """

    __slots__ = ("cond", "edges", "loc", "uniform")

    def __init__(
        self, edges: list[Edge], cond: Reg | None = None, uniform: bool = False, loc: Loc | None = None
    ) -> None:
        self.edges = edges
        self.cond = cond
        self.uniform = uniform
        self.loc = loc


class Block:
    """A basic block in SSA form."""

    __slots__ = ("hint", "insts", "nounroll", "params", "term")

    def __init__(self, hint: str = "", params: list[Reg] | None = None) -> None:
        self.hint = hint
        self.params: list[Reg] = params if params is not None else []
        self.insts: list[Inst | Comment] = []
        self.term: Terminator | None = None
        self.nounroll = False


class Function:
    """An entry in SSA form; the first block is where it starts and has no parameters.

    `params` are (class, name, byte size, alignment) of the kernel's parameters, in order. `directives`, `shared` and
    `pointers` are carried into the flat form: see `FlatFunction`.
    """

    __slots__ = ("blocks", "directives", "name", "params", "pointers", "shared")

    def __init__(self, name: str, params: list[tuple[str, str, int, int]]) -> None:
        self.name = name
        self.params = params
        self.pointers: dict[str, tuple[str, int]] = {}
        self.directives: dict[str, tuple[int, ...]] = {}
        self.shared: list[tuple[str, int, int]] = []
        self.blocks: list[Block] = []


class FlatFunction:
    """An entry in flat form: what is printed, parsed and simulated.

    `regs` are all virtual registers, `directives` the performance directives (``reqntid`` -> (128, 1, 1),
    ``minnctapersm`` -> (1,), ``explicitcluster`` -> ()), `shared` and `local` the static variables of the function:
    (name, alignment, bytes). `params` as in `Function`; `pointers` says of a parameter that it points: name ->
    (space, alignment), either may be empty. `tables` are the branch-target tables: name -> labels.
    """

    __slots__ = ("body", "directives", "local", "name", "params", "pointers", "regs", "shared", "tables")

    def __init__(self, name: str, params: list[tuple[str, str, int, int]]) -> None:
        self.name = name
        self.params = params
        self.pointers: dict[str, tuple[str, int]] = {}
        self.directives: dict[str, tuple[int, ...]] = {}
        self.regs: list[Reg] = []
        self.shared: list[tuple[str, int, int]] = []
        self.local: list[tuple[str, int, int]] = []
        self.tables: dict[str, list[str]] = {}
        self.body: list[Inst | Label | Comment] = []


# --- what an instruction reads and writes


def operand_regs(operand: Operand | None) -> list[Reg]:
    """The registers that an operand names, in order (an address names its base and coordinates)."""
    regs: list[Reg] = []
    _collect(operand, regs)
    return regs


def _collect(operand: Operand | None, regs: list[Reg]) -> None:
    """Append what `operand_regs` gives: nearly all operands are registers, or vectors of many."""
    kind = type(operand)
    if kind is Reg:
        regs.append(operand)  # type: ignore[arg-type]
    elif kind is Imm or kind is Symbol:
        return
    elif isinstance(operand, Vec):
        for item in operand.items:
            if type(item) is Reg:
                regs.append(item)
            else:
                _collect(item, regs)
    elif isinstance(operand, Addr):
        _collect(operand.base, regs)
        for item in operand.coords or ():
            _collect(item, regs)
    elif isinstance(operand, Not):
        regs.append(operand.reg)
    elif isinstance(operand, Pair):
        _collect(operand.first, regs)
        _collect(operand.second, regs)


def written(inst: Inst) -> list[Reg]:
    """The registers that `inst` defines, in order."""
    count = inst.num_results
    if count == 1 and inst.redefined is None:
        operand = inst.operands[0]
        if type(operand) is Reg:  # nearly all
            return [operand]
    regs: list[Reg] = []
    for operand in inst.operands[:count]:
        _collect(operand, regs)
    for operand in inst.redefined or ():
        _collect(operand, regs)
    return regs


def read(inst: Inst, tied: bool = True) -> list[Reg]:
    """The registers that `inst` reads: operands that are no results, the guard, and (if `tied`) tied values."""
    regs: list[Reg] = []
    for operand in inst.operands[inst.num_results :]:
        if type(operand) is Reg:
            regs.append(operand)
        else:
            _collect(operand, regs)
    if inst.guard is not None:
        regs.append(inst.guard)
    if tied and inst.tied_in is not None:
        for operand in inst.tied_in:
            _collect(operand, regs)
    return regs


def ties(inst: Inst) -> list[tuple[Reg, "Reg | Imm"]]:
    """(result register, tied value) pairs of `inst`; `InternalError` when a tie has two shapes or classes."""
    if inst.tied_in is None:
        return []
    results = inst.operands[: inst.num_results] + (inst.redefined or [])
    pairs: list[tuple[Reg, Reg | Imm]] = []
    for result, tied in zip(results, inst.tied_in, strict=False):
        if tied is None:
            continue
        lefts = result.items if isinstance(result, Vec) else [result]
        rights = tied.items if isinstance(tied, Vec) else [tied]
        if len(lefts) != len(rights):
            raise InternalError(f"a tie of {inst.opcode} joins {len(lefts)} and {len(rights)} registers", inst.loc)
        for left, right in zip(lefts, rights, strict=True):
            if not isinstance(left, Reg) or not isinstance(right, (Reg, Imm)):
                raise InternalError(f"a tie of {inst.opcode} joins {left!r} and {right!r}", inst.loc)
            if isinstance(right, Reg) and left.cls != right.cls:
                raise InternalError(f"a tie of {inst.opcode} joins {left.cls} and {right.cls} registers", inst.loc)
            pairs.append((left, right))
    return pairs


# --- generic passes


def reachable_blocks(fn: Function) -> list[Block]:
    """The blocks that can be entered, in the function's order."""
    seen: set[int] = set()
    todo = fn.blocks[:1]
    while todo:
        block = todo.pop()
        if id(block) in seen:
            continue
        seen.add(id(block))
        if block.term is None:
            raise InternalError(f"a block of {fn.name} has no terminator ({block.hint or 'no hint'})")
        todo += [edge.block for edge in block.term.edges]
    return [block for block in fn.blocks if id(block) in seen]


def dead_code(fn: Function, removable: Callable[[Inst], bool]) -> int:
    """Remove instructions and block parameters whose values nothing needs; returns how many instructions went.

    `removable(inst)` says whether an instruction may go when its results are unused (the instruction table knows). A
    value that only feeds itself around a loop is not needed. Unreachable blocks go too.
    """
    fn.blocks = reachable_blocks(fn)
    needed, makers = _roots(fn, removable)
    seen: set[Reg] = set()
    while needed:
        reg = needed.pop()
        if reg not in seen:
            seen.add(reg)
            needed += makers.get(reg, ())
    removed = 0
    for block in fn.blocks:
        keep = [
            i for i in block.insts if not isinstance(i, Inst) or not removable(i) or not seen.isdisjoint(written(i))
        ]
        removed += len(block.insts) - len(keep)
        block.insts = keep
    _drop_params(fn, seen)
    return removed


def _roots(fn: Function, removable: Callable[[Inst], bool]) -> tuple[list[Reg], dict[Reg, list[Reg]]]:
    """What must be kept for its own sake, and for every other register what it is made from."""
    needed: list[Reg] = []
    makers: dict[Reg, list[Reg]] = {}
    for block in fn.blocks:
        for inst in block.insts:
            if isinstance(inst, Comment):
                continue
            if not removable(inst):
                needed += read(inst)
            else:
                uses = read(inst)
                for reg in written(inst):
                    makers[reg] = uses
        assert block.term is not None
        if block.term.cond is not None:
            needed.append(block.term.cond)
        for edge in block.term.edges:
            for param, arg in zip(edge.block.params, edge.args, strict=True):
                if isinstance(arg, Reg):
                    makers.setdefault(param, []).append(arg)
    return needed, makers


def _drop_params(fn: Function, needed: set[Reg]) -> None:
    kept = {id(b): [i for i, p in enumerate(b.params) if p in needed] for b in fn.blocks}
    for block in fn.blocks:
        for edge in block.term.edges if block.term is not None else ():
            edge.args = [edge.args[i] for i in kept[id(edge.block)]]
    for block in fn.blocks:
        block.params = [block.params[i] for i in kept[id(block)]]
