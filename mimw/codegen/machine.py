"""Machine IR: target instructions on virtual registers, and the operand kinds they take.

Owns `Reg` and the other operands, `Inst`, `Block`, `Function`, and the passes that need no knowledge of a target. Lowerings build
it in SSA form over basic blocks with block parameters; `leave_ssa` turns it into the flat form (labels and instructions in one
list) that the printer prints, the parser reads back and the simulator runs. Knows no mnemonic: what an opcode takes is asked of
the target's instruction table.

Objects are slotted and mutable: frozen dataclasses cost five times as much to make.
"""

from __future__ import annotations

from typing import Union

from mimw.diagnostics import Loc


class Reg:
    """A virtual register. `cls` is its register class (PTX: pred b8 b16 b32 b64 b128 f32 f64 ...), `hint` a name from the source.

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
    """An immediate: an integer, or a float given by its bits (`cls` "f32" or "f64": printed 0fXXXXXXXX / 0dXXXXXXXXXXXXXXXX)."""

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


class Symbol:
    """The address of a module-level variable, a parameter or a function (``smem``, ``k_param_0``)."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Vec:
    """Registers that one instruction takes as a tuple: ``{a, b, c, d}``. Elements: Reg, Imm or Sink."""

    __slots__ = ("items",)

    def __init__(self, items: "list[Operand]") -> None:
        self.items = items


class Addr:
    """A memory operand ``[base+offset]``; with `coords`, a tensor-map operand ``[base, {c0, c1}]``."""

    __slots__ = ("base", "coords", "offset")

    def __init__(self, base: "Reg | Symbol | Imm", offset: int = 0, coords: "list[Operand] | None" = None) -> None:
        self.base = base
        self.offset = offset
        self.coords = coords


class Not:
    """A negated predicate source, ``!p``."""

    __slots__ = ("reg",)

    def __init__(self, reg: Reg) -> None:
        self.reg = reg


class Pair:
    """A result with a second predicate result, ``d|p``. Either side may be `Sink`."""

    __slots__ = ("first", "second")

    def __init__(self, first: "Reg | Sink", second: "Reg | Sink") -> None:
        self.first = first
        self.second = second


class Sink:
    """The result that is thrown away, ``_``."""

    __slots__ = ()


class LabelRef:
    """A branch target or a branch-target table, by name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


Operand = Union[Reg, Imm, Special, Symbol, Vec, Addr, Not, Pair, Sink, LabelRef]


class Inst:
    """One target instruction.

    `opcode` is the full dotted opcode (``"ld.global.v4.b32"``), the key into the target's instruction table. `operands` holds all
    operands in printed order; the first `num_results` of them are written. `guard` is the predicate in front (``@p``,
    ``@!p`` with `guard_neg`). `ties` pairs (result position, operand position) that must share their registers (accumulators):
    in SSA form the tied input stands after the printed operands, in `tied_in`, one Vec or Reg a tie, and is not printed.
    """

    __slots__ = ("guard", "guard_neg", "loc", "num_results", "opcode", "operands", "tied_in")

    def __init__(
        self,
        opcode: str,
        operands: "list[Operand]",
        num_results: int = 0,
        loc: Loc | None = None,
        guard: Reg | None = None,
        guard_neg: bool = False,
        tied_in: "list[Operand] | None" = None,
    ) -> None:
        self.opcode = opcode
        self.operands = operands
        self.num_results = num_results
        self.loc = loc
        self.guard = guard
        self.guard_neg = guard_neg
        self.tied_in = tied_in


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
    """How a block ends: no edges = return; one = jump; two = `cond` ? first : second. `uniform` when all lanes of a warp agree."""

    __slots__ = ("cond", "edges", "loc", "uniform")

    def __init__(self, edges: list[Edge], cond: Reg | None = None, uniform: bool = False, loc: Loc | None = None) -> None:
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
    """An entry in SSA form. `params` are (class, name, byte size, alignment) of the kernel's parameters, in order."""

    __slots__ = ("blocks", "name", "params")

    def __init__(self, name: str, params: list[tuple[str, str, int, int]]) -> None:
        self.name = name
        self.params = params
        self.blocks: list[Block] = []


class FlatFunction:
    """An entry in flat form: what is printed, parsed and simulated.

    `regs` are all virtual registers, `directives` the performance directives (``reqntid`` -> (128, 1, 1),
    ``minnctapersm`` -> (1,), ``explicitcluster`` -> ()), `shared` and `local` the static variables of the function: (name,
    alignment, bytes). `params` as in `Function`; `pointers` says of a parameter that it points: name -> (space, alignment),
    either may be empty. `tables` are the branch-target tables: name -> labels.
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
