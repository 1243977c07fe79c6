"""PTX text to a `PtxModule`: enough of the grammar for what mimw, nvcc and Triton write.

Owns `parse` and the module level; entry bodies are `body_parser`'s. Comments, `.section` blocks and pragmas that
stand before no label are dropped. Device functions (`.func`) with a body are passed over; calls are `call_parser`'s.
Operands are not checked against the instruction table here.
"""

from __future__ import annotations

from mimw.codegen.machine import FlatFunction
from mimw.codegen.ptx.body_parser import BodyParser, Sources
from mimw.codegen.ptx.lexer import PtxSyntaxError, Tokens
from mimw.codegen.ptx.module import Extern, PtxModule
from mimw.codegen.ptx.variable_parser import read_variables, type_bytes

_LINKAGE = frozenset((".extern", ".visible", ".weak", ".common"))
_SPACES = frozenset((".global", ".const", ".shared", ".local"))
_SCALAR_DIRECTIVES = frozenset(
    (".reqntid", ".maxntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".reqnctapercluster", ".maxclusterrank")
)
_FLAG_DIRECTIVES = frozenset((".explicitcluster", ".blocksareclusters", ".noreturn"))


def parse(text: str) -> PtxModule:
    """The module that `text` is; `PtxSyntaxError` names the line that cannot be read."""
    return _Parser(text).module()


class _Parser:
    """Reads the module level."""

    def __init__(self, text: str) -> None:
        self.t = Tokens(text)
        self.sources = Sources()

    def module(self) -> PtxModule:
        out = PtxModule("")
        while self.t.peek():
            self._module_item(out)
        out.files = self.sources.finish()
        if not out.target:
            raise self.t.fail("the text has no .target")
        return out

    def _module_item(self, out: PtxModule) -> None:
        token = self.t.peek()
        if token == ".version":
            self.t.pos += 1
            major, _, minor = self.t.take().partition(".")
            out.version = (int(major), int(minor))
        elif token == ".target":
            self.t.pos += 1
            out.target = self.t.take()
            while self.t.accept(","):
                self.t.take()
        elif token == ".address_size":
            self.t.pos += 1
            out.address_size = self.t.integer()
        elif token == ".file":
            self.sources.read_file(self.t)
        elif token == ".section":
            self.t.pos += 2
            self.t.skip_braces()
        elif token in (".pragma", ".alias"):
            self.t.skip_statement()
        elif token in _LINKAGE or token in _SPACES or token in (".entry", ".func"):
            self._declaration(out)
        else:
            raise self.t.fail(f"{token!r} cannot stand at module level")

    def _declaration(self, out: PtxModule) -> None:
        linkage = ""
        while self.t.peek() in _LINKAGE:
            linkage = self.t.take()[1:]
        token = self.t.peek()
        if token == ".entry":
            self.t.pos += 1
            entry = self._entry()
            if entry is not None:
                out.entries.append(entry)
        elif token == ".func":
            self._function(out, linkage)
        elif token in _SPACES:
            out.variables += read_variables(self.t, linkage)
        else:
            raise self.t.fail(f"{token!r} is no declaration")

    def _function(self, out: PtxModule, linkage: str) -> None:
        if linkage != "extern":
            out.skipped.append(self._skip_function())
            return
        t = self.t
        t.expect(".func")
        results = self._parameters()
        found = Extern(t.take(), results, self._parameters())
        found.noreturn = t.accept(".noreturn")
        t.expect(";")
        out.externs.append(found)

    def _parameters(self) -> list[tuple[str, str, int, int]]:
        """A list in parentheses, or none."""
        holder = FlatFunction("", [])
        if self.t.accept("("):
            while not self.t.accept(")"):
                self._parameter(holder)
                self.t.accept(",")
        return holder.params

    def _skip_function(self) -> str:
        self.t.pos += 1
        while self.t.peek().startswith("."):
            self.t.pos += 1
        if self.t.peek() == "(":
            while self.t.take() != ")":
                pass
        name = self.t.take()
        while self.t.peek() not in (";", "{"):
            self.t.take()
        if not self.t.accept(";"):
            self.t.skip_braces()
        return name

    # --- entries

    def _entry(self) -> FlatFunction | None:
        out = FlatFunction(self.t.take(), [])
        if self.t.accept("("):
            while not self.t.accept(")"):
                self._parameter(out)
                self.t.accept(",")
        while self.t.peek() not in ("{", ";"):
            self._directive(out)
        if self.t.accept(";"):
            return None  # a declaration only
        BodyParser(self.t, self.sources, out).run()
        return out

    def _parameter(self, out: FlatFunction) -> None:
        self.t.expect(".param")
        align, cls = 0, ""
        pointer: tuple[str, int] | None = None
        while self.t.peek().startswith("."):
            word = self.t.take()
            if word == ".align":
                align = self.t.integer()
                if pointer is not None:
                    pointer = (pointer[0], align)
                    align = 0
            elif word == ".ptr":
                pointer = ("", 0)
            elif word in _SPACES:
                pointer = (word[1:], 0)
            else:
                cls = word[1:]
        name = self.t.take()
        size = type_bytes(self.t, cls)
        align = align or size
        if self.t.accept("["):
            size *= self.t.integer()
            self.t.expect("]")
        if pointer is not None:
            out.pointers[name] = pointer
        out.params.append((cls, name, size, align))

    def _directive(self, out: FlatFunction) -> None:
        word = self.t.take()
        if word in _FLAG_DIRECTIVES:
            out.directives[word[1:]] = ()
        elif word in _SCALAR_DIRECTIVES:
            values = [self.t.integer()]
            while self.t.accept(","):
                values.append(self.t.integer())
            out.directives[word[1:]] = tuple(values)
        elif word == ".pragma":
            self.t.skip_statement()
        else:
            self.t.pos -= 1
            raise self.t.fail(f"unknown directive {word!r} on an entry")


__all__ = ["PtxSyntaxError", "parse"]
