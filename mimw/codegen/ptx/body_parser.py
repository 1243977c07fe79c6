"""The body of a PTX entry to instructions and labels.

Owns scopes: registers and labels of nested braces get names of their own, `.loc` lines become the places of the
instructions that follow. Opcodes are resolved in the instruction table, for the number of results.
"""

from __future__ import annotations

from mimw.codegen.machine import (
    Addr,
    FlatFunction,
    Imm,
    Inst,
    Label,
    LabelRef,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Special,
    Symbol,
    Vec,
)
from mimw.codegen.ptx.call_parser import CallReader, refusal
from mimw.codegen.ptx.isa import CONTROL, UnknownInstruction, resolve
from mimw.codegen.ptx.lexer import Tokens
from mimw.codegen.ptx.operands import SPECIAL_REGISTERS
from mimw.codegen.ptx.variable_parser import read_variables, type_bytes
from mimw.diagnostics import Loc


class Sources:
    """The `.file` table and the places that `.loc` lines name. A file may be declared after the lines that use it."""

    def __init__(self) -> None:
        self.files: dict[int, str] = {}
        self.locs: dict[tuple[int, int, int], Loc] = {}
        self.pending: list[tuple[Loc, int]] = []

    def read_file(self, t: Tokens) -> None:
        """Read a `.file` line."""
        t.expect(".file")
        index = t.integer()
        self.files[index] = t.take().strip('"')
        while t.accept(","):
            t.take()

    def place(self, file: int, line: int, col: int, site: Loc | None = None) -> Loc:
        """The place of that file number, line and column, inlined at `site`; its file name is filled in by `finish`."""
        loc = self.locs.get((file, line, col)) if site is None else None
        if loc is None:
            loc = Loc("", line, col, call_site=site)
            self.pending.append((loc, file))
            if site is None:
                self.locs[(file, line, col)] = loc
        return loc

    def finish(self) -> list[str]:
        """Fill in the file names; returns them in the order of their numbers."""
        for loc, index in self.pending:
            loc.file = self.files.get(index, f"<file {index}>")
        return [self.files[index] for index in sorted(self.files)]


class _Scope:
    """Registers and labels of one brace level, and the label references that are not yet resolved."""

    __slots__ = ("labels", "refs", "regs")

    def __init__(self) -> None:
        self.regs: dict[str, Reg] = {}
        self.labels: dict[str, str] = {}
        self.refs: list[tuple[LabelRef, int]] = []


class BodyParser:
    """Reads the statements of one entry into `out`."""

    def __init__(self, tokens: Tokens, sources: Sources, out: FlatFunction) -> None:
        self.t = tokens
        self.sources = sources
        self.out = out
        self.scopes: list[_Scope] = []
        self.names: set[str] = set()
        self.label_names: set[str] = set()
        self.pragma = ""
        self.loc: Loc | None = None
        self.tables: dict[str, list[LabelRef]] = {}

    def run(self) -> None:
        """Read from the opening brace to the closing one."""
        t = self.t
        t.expect("{")
        self.scopes.append(_Scope())
        while self.scopes:
            token = t.peek()
            if token == "{":
                t.pos += 1
                self.scopes.append(_Scope())
            elif token == "}":
                t.pos += 1
                self._close_scope()
            elif token == ";":
                t.pos += 1
            elif token[:1] == ".":
                self._directive(token)
            elif t.peek(1) == ":":
                self._label()
            else:
                self._inst()
        self.out.tables = {name: [ref.name for ref in refs] for name, refs in self.tables.items()}

    def _close_scope(self) -> None:
        scope = self.scopes.pop()
        for ref, place in scope.refs:
            renamed = scope.labels.get(ref.name)
            if renamed is not None:
                ref.name = renamed
            elif self.scopes:
                self.scopes[-1].refs.append((ref, place))
            else:
                self.t.pos = place
                raise self.t.fail(f"no label is called {ref.name!r}")

    def _directive(self, token: str) -> None:
        t = self.t
        if token == ".reg":
            t.pos += 1
            self._registers()
        elif token == ".loc":
            t.pos += 1
            self._loc()
        elif token == ".pragma":
            t.pos += 1
            self.pragma = t.take().strip('"')
            t.expect(";")
        elif token in (".shared", ".local"):
            for var in read_variables(t, ""):
                (self.out.shared if token == ".shared" else self.out.local).append((var.name, var.align, var.size))
        elif token == ".file":
            self.sources.read_file(t)
        elif token == ".section":
            t.pos += 2
            t.skip_braces()
        elif token == ".param":
            self.out.body.append(CallReader(t, self._operand, self._find).run(self.loc))
            self.pragma = ""
        else:
            raise t.fail(f"unknown directive {token!r} in a body")

    def _registers(self) -> None:
        t = self.t
        cls = t.take()[1:]
        if cls in ("v2", "v4"):
            raise t.fail("vector register declarations are not supported")
        type_bytes(t, cls)
        while True:
            name = t.take()
            if t.accept("<"):
                count = t.integer()
                t.expect(">")
                for i in range(count):
                    self._register(cls, f"{name}{i}")
            else:
                self._register(cls, name)
            if not t.accept(","):
                break
        t.expect(";")

    def _register(self, cls: str, name: str) -> None:
        unique = _fresh(name, self.names)
        reg = Reg(cls, "", unique)
        self.scopes[-1].regs[name] = reg
        self.out.regs.append(reg)

    def _loc(self) -> None:
        t = self.t
        place = (t.integer(), t.integer(), t.integer())
        site: Loc | None = None
        while t.accept(","):
            word = t.take()
            if word == "function_name":
                t.take()
                if t.accept("+"):
                    t.integer()
            elif word == "inlined_at":
                site = self.sources.place(t.integer(), t.integer(), t.integer())
            else:
                raise t.fail(f"unknown attribute {word!r} of .loc")
        self.loc = self.sources.place(*place, site)

    def _label(self) -> None:
        t = self.t
        name = t.take()
        t.pos += 1
        if t.peek() == ".branchtargets":
            t.pos += 1
            targets = [self._label_ref(t.take())]
            while t.accept(","):
                targets.append(self._label_ref(t.take()))
            t.expect(";")
            unique = _fresh(name, self.label_names)
            self.scopes[-1].labels[name] = unique
            self.tables[unique] = targets
            return
        if t.peek() in (".callprototype", ".calltargets"):
            raise t.fail("indirect calls are not supported")
        unique = _fresh(name, self.label_names)
        self.scopes[-1].labels[name] = unique
        self.out.body.append(Label(unique, self.pragma))
        self.pragma = ""

    def _label_ref(self, name: str) -> LabelRef:
        ref = LabelRef(name)
        self.scopes[-1].refs.append((ref, self.t.pos - 1))
        return ref

    # --- instructions

    def _inst(self) -> None:
        t = self.t
        guard: Reg | None = None
        negated = False
        if t.accept("@"):
            negated = t.accept("!")
            guard = self._find(t.take())
            if guard is None:
                t.pos -= 1
                raise t.fail(f"the guard {t.peek()!r} is no register")
        opcode = t.take()
        if opcode.partition(".")[0] == "call":
            raise self._bare_call()
        try:
            form = resolve(opcode)
        except UnknownInstruction:
            t.pos -= 1
            raise t.fail(f"unknown instruction {opcode!r}") from None
        branch = form.effects == CONTROL
        operands: list[Operand] = []
        if not t.accept(";"):
            while True:
                operands.append(self._label_ref(t.take()) if branch and self._is_label() else self._operand())
                if t.accept(";"):
                    break
                t.expect(",")
        self.out.body.append(Inst(opcode, operands, form.num_results, self.loc, guard, negated))
        self.pragma = ""

    def _bare_call(self) -> Exception:
        """The error for a call that no parameters stand before."""
        t = self.t
        if t.peek() == "(":
            while t.take() != ")":
                pass
            t.accept(",")
        return t.fail(refusal(t.peek()))

    def _is_label(self) -> bool:
        return self._find(self.t.peek()) is None

    def _find(self, name: str) -> Reg | None:
        for scope in reversed(self.scopes):
            reg = scope.regs.get(name)
            if reg is not None:
                return reg
        return None

    def _operand(self) -> Operand:
        t = self.t
        token = t.peek()
        if token == "[":
            return self._address()
        if token == "{":
            return Vec(self._items())
        if token == "!":
            t.pos += 1
            reg = self._find(t.take())
            if reg is None:
                raise t.fail("expected a predicate register after '!'")
            return Not(reg)
        if token == "(":
            t.pos += 1
            inner = self._operand()
            t.expect(")")
            return inner
        first = self._simple()
        if t.peek() == "|":
            t.pos += 1
            second = self._simple()
            if not isinstance(first, (Reg, Sink)) or not isinstance(second, (Reg, Sink)):
                raise t.fail("both sides of '|' must be registers")
            return Pair(first, second)
        if t.peek() == "+":
            raise t.fail("address arithmetic outside brackets is not supported")
        return first

    def _simple(self) -> Reg | Imm | Special | Symbol | Sink:
        t = self.t
        token = t.peek()
        reg = self._find(token)
        if reg is not None:
            t.pos += 1
            return reg
        if token == "-" or token[:1].isdigit():
            return t.number()
        if token == "_":
            t.pos += 1
            return Sink()
        if token[:1] == "%" or token == "WARP_SZ":
            if token != "WARP_SZ" and token[1:].partition(".")[0] not in SPECIAL_REGISTERS:
                raise t.fail(f"register {token!r} is not declared")
            t.pos += 1
            return Special(token)
        if not token or not (token[0].isalpha() or token[0] in "_$"):
            raise t.fail(f"expected an operand, found {token!r}")
        t.pos += 1
        return Symbol(token)

    def _items(self) -> list[Operand]:
        t = self.t
        t.expect("{")
        items: list[Operand] = [self._simple()]
        while t.accept(","):
            items.append(self._simple())
        t.expect("}")
        return items

    def _address(self) -> Addr:
        t = self.t
        t.expect("[")
        base = self._simple()
        if isinstance(base, (Special, Sink)):
            t.pos -= 1
            raise t.fail(f"{t.peek()!r} cannot be an address")
        offset = 0
        if t.accept("+") or t.peek() == "-":
            offset = t.integer()
        coords = self._items() if t.accept(",") else None
        t.expect("]")
        return Addr(base, offset, coords)


def _fresh(name: str, taken: set[str]) -> str:
    unique, n = name, 0
    while unique in taken:
        n += 1
        unique = f"{name}_{n}"
    taken.add(unique)
    return unique
