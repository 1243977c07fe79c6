"""PTX text to a `PtxModule`: enough of the grammar for what mimw, nvcc and Triton write.

Owns `parse` and `PtxSyntaxError`. Comments, `.section` blocks and pragmas that stand before no label are dropped; registers and
labels of nested scopes get names of their own. Device functions (`.func`) are passed over and an entry that calls one is refused.
Opcodes are resolved in the instruction table (for the number of results); operands are not checked against it here.
"""

from __future__ import annotations

import re
import struct

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
from mimw.codegen.ptx.isa import UnknownInstruction, resolve, type_bits
from mimw.codegen.ptx.module import PtxModule, Variable
from mimw.diagnostics import Loc

_TOKEN = re.compile(
    r"0[fF][0-9a-fA-F]{8}(?!\w)|0[dD][0-9a-fA-F]{16}(?!\w)|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?"
    r"|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?"
    r"|[%$._A-Za-z][\w$%]*(?:(?:::|\.)[\w$%]+)*|\"[^\"]*\"|[^\s]"
)
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_LINKAGE = frozenset((".extern", ".visible", ".weak", ".common"))
_SPACES = frozenset((".global", ".const", ".shared", ".local"))
_SCALAR_DIRECTIVES = frozenset(
    (".reqntid", ".maxntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".reqnctapercluster", ".maxclusterrank")
)
_FLAG_DIRECTIVES = frozenset((".explicitcluster", ".blocksareclusters", ".noreturn"))


class PtxSyntaxError(Exception):
    """Text that the parser cannot read; `line` is its 1-based line in the text."""

    def __init__(self, line: int, message: str, text: str = "") -> None:
        shown = f"\n    {text.strip()}" if text.strip() else ""
        super().__init__(f"PTX line {line}: {message}{shown}")
        self.line = line
        self.message = message


def parse(text: str) -> PtxModule:
    """The module that `text` is; `PtxSyntaxError` names the line that cannot be read."""
    return _Parser(text).module()


def _int(token: str) -> int:
    digits = token.rstrip("Uu")
    if digits[:2] in ("0x", "0X", "0b", "0B"):
        return int(digits, 0)
    return int(digits, 8) if digits[0] == "0" and len(digits) > 1 else int(digits)


class _Scope:
    """Registers and labels of one brace level, and the label references that are not yet resolved."""

    __slots__ = ("labels", "refs", "regs")

    def __init__(self) -> None:
        self.regs: dict[str, Reg] = {}
        self.labels: dict[str, str] = {}
        self.refs: list[LabelRef] = []


class _Parser:
    def __init__(self, text: str) -> None:
        self.source = text
        self.tokens: list[str] = []
        self.lines: list[int] = []
        self._tokenize(text)
        self.pos = 0
        self.files: dict[int, str] = {}
        self.locs: dict[tuple[int, int, int], Loc] = {}
        self.loc_files: list[tuple[Loc, int]] = []
        self.device_functions: set[str] = set()

    def _tokenize(self, text: str) -> None:
        if "/*" in text:
            text = _BLOCK_COMMENT.sub(lambda m: "\n" * m.group().count("\n") or " ", text)
        findall, tokens, lines = _TOKEN.findall, self.tokens, self.lines
        for number, line in enumerate(text.split("\n"), 1):
            if "//" in line and '"' not in line:
                line = line[: line.index("//")]
            elif "//" in line:
                line = _cut_comment(line)
            found = findall(line)
            tokens += found
            lines += [number] * len(found)
        tokens.append("")
        lines.append(lines[-1] if lines else 1)

    # --- tokens

    def fail(self, message: str) -> PtxSyntaxError:
        line = self.lines[min(self.pos, len(self.lines) - 1)]
        return PtxSyntaxError(line, message, self.source.split("\n")[line - 1])

    def take(self) -> str:
        token = self.tokens[self.pos]
        if not token:
            raise self.fail("the text ends too early")
        self.pos += 1
        return token

    def expect(self, token: str) -> None:
        if self.tokens[self.pos] != token:
            raise self.fail(f"expected {token!r}, found {self.tokens[self.pos]!r}")
        self.pos += 1

    def accept(self, token: str) -> bool:
        if self.tokens[self.pos] == token:
            self.pos += 1
            return True
        return False

    def integer(self) -> int:
        negative = self.accept("-")
        token = self.take()
        if not token[0].isdigit():
            self.pos -= 1
            raise self.fail(f"expected an integer, found {token!r}")
        value = _int(token)
        return -value if negative else value

    # --- module level

    def module(self) -> PtxModule:
        out = PtxModule("")
        while self.tokens[self.pos]:
            self._module_item(out)
        for loc, index in self.loc_files:
            loc.file = self.files.get(index, f"<file {index}>")
        out.files = [self.files[index] for index in sorted(self.files)]
        if not out.target:
            raise self.fail("the text has no .target")
        return out

    def _module_item(self, out: PtxModule) -> None:
        token = self.tokens[self.pos]
        if token == ".version":
            self.pos += 1
            major, _, minor = self.take().partition(".")
            out.version = (int(major), int(minor))
        elif token == ".target":
            self.pos += 1
            out.target = self.take()
            while self.accept(","):
                self.take()
        elif token == ".address_size":
            self.pos += 1
            out.address_size = self.integer()
        elif token == ".file":
            self._file()
        elif token == ".section":
            self.pos += 2
            self._skip_braces()
        elif token in (".pragma", ".alias"):
            self._skip_statement()
        elif token in _LINKAGE or token in _SPACES or token in (".entry", ".func"):
            self._declaration(out)
        else:
            raise self.fail(f"{token!r} cannot stand at module level")

    def _file(self) -> None:
        self.pos += 1
        index = self.integer()
        self.files[index] = self.take().strip('"')
        while self.accept(","):
            self.take()

    def _skip_braces(self) -> None:
        depth = 0
        while True:
            token = self.take()
            depth += (token == "{") - (token == "}")
            if depth == 0:
                return

    def _skip_statement(self) -> None:
        while self.take() != ";":
            pass

    def _declaration(self, out: PtxModule) -> None:
        linkage = ""
        while self.tokens[self.pos] in _LINKAGE:
            linkage = self.take()[1:]
        token = self.tokens[self.pos]
        if token == ".entry":
            self.pos += 1
            entry = self._entry()
            if entry is not None:
                out.entries.append(entry)
        elif token == ".func":
            out.skipped.append(self._skip_function())
        elif token in _SPACES:
            out.variables += self._variables(linkage)
        else:
            raise self.fail(f"{token!r} is no declaration")

    def _skip_function(self) -> str:
        self.pos += 1
        while self.tokens[self.pos].startswith("."):
            self.pos += 1
        if self.tokens[self.pos] == "(":
            while self.take() != ")":
                pass
        name = self.take()
        self.device_functions.add(name)
        while self.tokens[self.pos] not in (";", "{"):
            self.take()
        if not self.accept(";"):
            self._skip_braces()
        return name

    def _variables(self, linkage: str) -> list[Variable]:
        space = self.take()[1:]
        align, cls, lanes = 0, "", 1
        while self.tokens[self.pos].startswith("."):
            word = self.take()
            if word == ".align":
                align = self.integer()
            elif word in (".v2", ".v4"):
                lanes = int(word[2:])
            elif word == ".attribute":
                while self.take() != ")":
                    pass
            else:
                cls = word[1:]
        found = [self._variable(space, cls, align, lanes, linkage)]
        while self.accept(","):
            found.append(self._variable(space, cls, align, lanes, linkage))
        self.expect(";")
        return found

    def _variable(self, space: str, cls: str, align: int, lanes: int, linkage: str) -> Variable:
        name = self.take()
        element = self._type_bytes(cls) * lanes
        count, array, unsized = 1, False, False
        while self.accept("["):
            array = True
            if self.accept("]"):
                unsized = True
            else:
                count *= self.integer()
                self.expect("]")
        init = self._initialiser() if self.accept("=") else None
        if unsized:
            count = len(init) if init is not None else 0
        return Variable(space, name, cls, count * element, align, linkage, init, array)

    def _type_bytes(self, cls: str) -> int:
        try:
            return max(1, type_bits(cls) // 8)
        except KeyError:
            raise self.fail(f"unknown type .{cls}") from None

    def _initialiser(self) -> list[Imm | Symbol]:
        if not self.accept("{"):
            return [self._initial_value()]
        items: list[Imm | Symbol] = []
        while not self.accept("}"):
            if self.tokens[self.pos] == "{":
                items += self._initialiser()
            else:
                items.append(self._initial_value())
            self.accept(",")
        return items

    def _initial_value(self) -> Imm | Symbol:
        token = self.tokens[self.pos]
        if token == "-" or token[0].isdigit():
            return self._number()
        self.pos += 1
        if token != "generic":
            return Symbol(token)
        self.expect("(")
        name = self.take()
        self.expect(")")
        return Symbol(f"generic({name})")

    # --- entries

    def _entry(self) -> FlatFunction | None:
        out = FlatFunction(self.take(), [])
        if self.accept("("):
            while not self.accept(")"):
                self._parameter(out)
                self.accept(",")
        while self.tokens[self.pos] not in ("{", ";"):
            self._directive(out)
        if self.accept(";"):
            return None  # a declaration only
        _Body(self, out).run()
        return out

    def _parameter(self, out: FlatFunction) -> None:
        self.expect(".param")
        align, cls = 0, ""
        pointer: tuple[str, int] | None = None
        while self.tokens[self.pos].startswith("."):
            word = self.take()
            if word == ".align":
                align = self.integer()
                if pointer is not None:
                    pointer = (pointer[0], align)
                    align = 0
            elif word == ".ptr":
                pointer = ("", 0)
            elif word in _SPACES:
                pointer = (word[1:], 0)
            else:
                cls = word[1:]
        name = self.take()
        size = self._type_bytes(cls)
        align = align or size
        if self.accept("["):
            size *= self.integer()
            self.expect("]")
        if pointer is not None:
            out.pointers[name] = pointer
        out.params.append((cls, name, size, align))

    def _directive(self, out: FlatFunction) -> None:
        word = self.take()
        if word in _FLAG_DIRECTIVES:
            out.directives[word[1:]] = ()
        elif word in _SCALAR_DIRECTIVES:
            values = [self.integer()]
            while self.accept(","):
                values.append(self.integer())
            out.directives[word[1:]] = tuple(values)
        elif word == ".pragma":
            self._skip_statement()
        else:
            self.pos -= 1
            raise self.fail(f"unknown directive {word!r} on an entry")

    # --- numbers, shared by initialisers and operands

    def _number(self) -> Imm:
        negative = self.accept("-")
        token = self.take()
        mark = token[:2]
        if mark in ("0f", "0F") and len(token) == 10:
            bits = int(token[2:], 16)
            return Imm(bits ^ 0x80000000 if negative else bits, "f32")
        if mark in ("0d", "0D") and len(token) == 18:
            bits = int(token[2:], 16)
            return Imm(bits ^ (1 << 63) if negative else bits, "f64")
        if mark not in ("0x", "0X") and ("." in token or "e" in token or "E" in token):
            value = -float(token) if negative else float(token)
            return Imm(struct.unpack("<Q", struct.pack("<d", value))[0], "f64")
        value = _int(token)
        return Imm(-value if negative else value)


def _cut_comment(line: str) -> str:
    """The line up to a ``//`` that stands outside a string."""
    quoted = False
    for i, char in enumerate(line):
        if char == '"':
            quoted = not quoted
        elif char == "/" and not quoted and line.startswith("//", i):
            return line[:i]
    return line


class _Body:
    """The statements of one entry."""

    def __init__(self, parser: _Parser, out: FlatFunction) -> None:
        self.p = parser
        self.out = out
        self.scopes: list[_Scope] = []
        self.names: set[str] = set()
        self.label_names: set[str] = set()
        self.pragma = ""
        self.loc: Loc | None = None
        self.tables: dict[str, list[LabelRef]] = {}

    def run(self) -> None:
        p = self.p
        p.expect("{")
        self.scopes.append(_Scope())
        while self.scopes:
            token = p.tokens[p.pos]
            if token == "{":
                p.pos += 1
                self.scopes.append(_Scope())
            elif token == "}":
                p.pos += 1
                self._close_scope()
            elif token == ";":
                p.pos += 1
            elif token[:1] == ".":
                self._directive(token)
            elif p.tokens[p.pos + 1 : p.pos + 2] == [":"]:
                self._label()
            else:
                self._inst()
        self.out.tables = {name: [ref.name for ref in refs] for name, refs in self.tables.items()}

    def _close_scope(self) -> None:
        scope = self.scopes.pop()
        for ref in scope.refs:
            renamed = scope.labels.get(ref.name)
            if renamed is not None:
                ref.name = renamed
            elif self.scopes:
                self.scopes[-1].refs.append(ref)
            else:
                raise self.p.fail(f"no label is called {ref.name!r}")

    def _directive(self, token: str) -> None:
        p = self.p
        if token == ".reg":
            p.pos += 1
            self._registers()
        elif token == ".loc":
            p.pos += 1
            self._loc()
        elif token == ".pragma":
            p.pos += 1
            self.pragma = p.take().strip('"')
            p.expect(";")
        elif token in (".shared", ".local"):
            for var in p._variables(""):
                (self.out.shared if token == ".shared" else self.out.local).append((var.name, var.align, var.size))
        elif token == ".file":
            p._file()
        elif token == ".section":
            p.pos += 2
            p._skip_braces()
        elif token == ".param":
            raise p.fail("the entry calls a device function: calls are not supported")
        else:
            raise p.fail(f"unknown directive {token!r} in a body")

    def _registers(self) -> None:
        p = self.p
        cls = p.take()[1:]
        if cls in ("v2", "v4"):
            raise p.fail("vector register declarations are not supported")
        p._type_bytes(cls)
        while True:
            name = p.take()
            if p.accept("<"):
                count = p.integer()
                p.expect(">")
                for i in range(count):
                    self._register(cls, f"{name}{i}")
            else:
                self._register(cls, name)
            if not p.accept(","):
                break
        p.expect(";")

    def _register(self, cls: str, name: str) -> None:
        unique = _fresh(name, self.names)
        reg = Reg(cls, "", unique)
        self.scopes[-1].regs[name] = reg
        self.out.regs.append(reg)

    def _loc(self) -> None:
        p = self.p
        place = (p.integer(), p.integer(), p.integer())
        loc = self._loc_at(place)
        if p.tokens[p.pos] == ",":
            loc = self._inlined(place)
        self.loc = loc

    def _loc_at(self, place: tuple[int, int, int]) -> Loc:
        p = self.p
        loc = p.locs.get(place)
        if loc is None:
            loc = p.locs[place] = Loc("", place[1], place[2])
            p.loc_files.append((loc, place[0]))
        return loc

    def _inlined(self, place: tuple[int, int, int]) -> Loc:
        p = self.p
        site: Loc | None = None
        while p.accept(","):
            word = p.take()
            if word == "function_name":
                p.take()
                if p.accept("+"):
                    p.integer()
            elif word == "inlined_at":
                site = self._loc_at((p.integer(), p.integer(), p.integer()))
            else:
                raise p.fail(f"unknown attribute {word!r} of .loc")
        loc = Loc("", place[1], place[2], call_site=site)
        p.loc_files.append((loc, place[0]))
        return loc

    def _label(self) -> None:
        p = self.p
        name = p.take()
        p.pos += 1
        if p.tokens[p.pos] == ".branchtargets":
            p.pos += 1
            targets = [self._label_ref(p.take())]
            while p.accept(","):
                targets.append(self._label_ref(p.take()))
            p.expect(";")
            unique = _fresh(name, self.label_names)
            self.scopes[-1].labels[name] = unique
            self.tables[unique] = targets
            return
        if p.tokens[p.pos] in (".callprototype", ".calltargets"):
            raise p.fail("indirect calls are not supported")
        unique = _fresh(name, self.label_names)
        self.scopes[-1].labels[name] = unique
        self.out.body.append(Label(unique, self.pragma))
        self.pragma = ""

    def _label_ref(self, name: str) -> LabelRef:
        ref = LabelRef(name)
        self.scopes[-1].refs.append(ref)
        return ref

    # --- instructions

    def _inst(self) -> None:
        p = self.p
        guard: Reg | None = None
        negated = False
        if p.accept("@"):
            negated = p.accept("!")
            guard = self._find(p.take())
            if guard is None:
                p.pos -= 1
                raise p.fail(f"the guard {p.tokens[p.pos]!r} is no register")
        opcode = p.take()
        if opcode.startswith("call"):
            raise p.fail("calls are not supported")
        try:
            form = resolve(opcode)
        except UnknownInstruction:
            p.pos -= 1
            raise p.fail(f"unknown instruction {opcode!r}") from None
        branch = opcode.startswith("br") and form.effects == 16
        operands: list[Operand] = []
        if not p.accept(";"):
            while True:
                operands.append(self._label_ref(p.take()) if branch and self._is_label() else self._operand())
                if p.accept(";"):
                    break
                p.expect(",")
        self.out.body.append(Inst(opcode, operands, form.num_results, self.loc, guard, negated))
        self.pragma = ""

    def _is_label(self) -> bool:
        return self._find(self.p.tokens[self.p.pos]) is None

    def _find(self, name: str) -> Reg | None:
        for scope in reversed(self.scopes):
            reg = scope.regs.get(name)
            if reg is not None:
                return reg
        return None

    def _operand(self) -> Operand:
        p = self.p
        token = p.tokens[p.pos]
        if token == "[":
            return self._address()
        if token == "{":
            return Vec(self._items())
        if token == "!":
            p.pos += 1
            reg = self._find(p.take())
            if reg is None:
                raise p.fail("expected a predicate register after '!'")
            return Not(reg)
        if token == "(":
            p.pos += 1
            inner = self._operand()
            p.expect(")")
            return inner
        first = self._simple()
        if p.tokens[p.pos] == "|":
            p.pos += 1
            second = self._simple()
            if not isinstance(first, (Reg, Sink)) or not isinstance(second, (Reg, Sink)):
                raise p.fail("both sides of '|' must be registers")
            return Pair(first, second)
        return first

    def _simple(self) -> Reg | Imm | Special | Symbol | Sink:
        p = self.p
        token = p.tokens[p.pos]
        reg = self._find(token)
        if reg is not None:
            p.pos += 1
            return reg
        if token == "-" or token[:1].isdigit():
            return p._number()
        if token == "_":
            p.pos += 1
            return Sink()
        if token[:1] == "%" or token == "WARP_SZ":
            p.pos += 1
            return Special(token)
        if not token or not (token[0].isalpha() or token[0] in "_$"):
            raise p.fail(f"expected an operand, found {token!r}")
        p.pos += 1
        if p.tokens[p.pos] == "+":
            raise p.fail("address arithmetic outside brackets is not supported")
        return Symbol(token)

    def _items(self) -> list[Operand]:
        p = self.p
        p.expect("{")
        items: list[Operand] = [self._simple()]
        while p.accept(","):
            items.append(self._simple())
        p.expect("}")
        return items

    def _address(self) -> Addr:
        p = self.p
        p.expect("[")
        base = self._simple()
        if isinstance(base, (Special, Sink)):
            p.pos -= 1
            raise p.fail(f"{p.tokens[p.pos]!r} cannot be an address")
        offset = 0
        if p.accept("+"):
            offset = p.integer()
        elif p.tokens[p.pos] == "-":
            offset = p.integer()
        coords = self._items() if p.accept(",") else None
        p.expect("]")
        return Addr(base, offset, coords)


def _fresh(name: str, taken: set[str]) -> str:
    unique, n = name, 0
    while unique in taken:
        n += 1
        unique = f"{name}_{n}"
    taken.add(unique)
    return unique
