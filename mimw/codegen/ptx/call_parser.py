"""The call sequence of PTX: ``{ .param ...; st.param ...; call ...; ld.param ...; }`` to one `Inst`.

Owns which functions can be called (`CALLEES`). The instruction that comes out has the operands (result, function, arguments...): the
`.param` variables are only how the text passes them. Knows nothing of scopes: the body parser lends its operand reader.
"""

from __future__ import annotations

from collections.abc import Callable

from mimw.codegen.machine import Imm, Inst, Operand, Reg, Sink, Special, Symbol
from mimw.codegen.ptx.isa import resolve
from mimw.codegen.ptx.lexer import Tokens
from mimw.diagnostics import Loc

# Function -> (classes of its results, of its arguments), by size.
CALLEES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {"vprintf": (("b32",), ("b64", "b64"))}


class CallReader:
    """Reads one call sequence, from its first `.param` to the brace that closes the scope (left in place)."""

    def __init__(self, t: Tokens, operand: Callable[[], Operand], register: Callable[[str], Reg | None]) -> None:
        self.t = t
        self.operand = operand
        self.register = register
        self.classes: dict[str, str] = {}
        self.values: dict[str, Operand] = {}
        self.result = ""
        self.inst: Inst | None = None

    def run(self, loc: Loc | None) -> Inst:
        """The call, at `loc`."""
        t = self.t
        while t.peek() != "}":
            token = t.peek()
            if token == ".param":
                self._variable()
            elif token.startswith("st.param.") and self.inst is None:
                self._store()
            elif token.startswith("ld.param.") and self.inst is not None:
                self._load(self.inst)
            elif self.inst is None and (token == "@" or token.partition(".")[0] == "call"):
                self.inst = self._call(loc)
            else:
                raise t.fail(f"{token!r} cannot stand in a call sequence")
        if self.inst is None:
            raise t.fail("the parameters of a call without the call")
        return self.inst

    def _variable(self) -> None:
        t = self.t
        t.expect(".param")
        cls = t.take()[1:]
        if cls[:1] not in ("b", "u", "s", "f") or cls[1:] not in ("32", "64"):
            raise t.fail(f"parameters of calls are 32 or 64 bits wide, not .{cls}")
        self.classes[t.take()] = "b" + cls[1:]
        t.expect(";")

    def _place(self, cls: str) -> str:
        """The variable of ``[name]`` or ``[name+0]``."""
        t = self.t
        t.expect("[")
        name = t.take()
        if t.accept("+") and t.integer() != 0:
            raise t.fail("a parameter of a call is stored whole")
        t.expect("]")
        if name not in self.classes or self.classes[name][1:] != cls[1:]:
            raise t.fail(f"{name!r} is no .{cls} parameter of this call")
        return name

    def _store(self) -> None:
        t = self.t
        cls = t.take().rpartition(".")[2]
        name = self._place(cls)
        t.expect(",")
        self.values[name] = self.operand()
        t.expect(";")

    def _load(self, inst: Inst) -> None:
        t = self.t
        cls = t.take().rpartition(".")[2]
        reg = self.register(t.take())
        t.expect(",")
        if self._place(cls) != self.result or reg is None:
            raise t.fail("only the call's result can be loaded, to a register")
        t.expect(";")
        inst.operands[0] = reg

    def _names(self) -> list[str]:
        t = self.t
        names: list[str] = []
        t.expect("(")
        while not t.accept(")"):
            names.append(t.take())
            t.accept(",")
        return names

    def _call(self, loc: Loc | None) -> Inst:
        t = self.t
        guard, negated = None, False
        if t.accept("@"):
            negated = t.accept("!")
            guard = self.register(t.take())
            if guard is None:
                raise t.fail("the guard of a call is no register")
        opcode = t.take()
        results: list[str] = []
        if t.peek() == "(":
            results = self._names()
            t.expect(",")
        name = t.peek()
        if name not in CALLEES:
            raise t.fail(refusal(name))
        t.pos += 1
        t.expect(",")
        arguments = self._names()
        t.expect(";")
        self._check(name, results, arguments)
        self.result = results[0]
        operands: list[Operand] = [Sink(), Symbol(name), *[self._value(a) for a in arguments]]
        return Inst(opcode, operands, resolve(opcode).num_results, loc, guard, negated)

    def _value(self, name: str) -> Operand:
        value = self.values[name]
        if not isinstance(value, (Reg, Imm, Symbol, Special)):
            raise self.t.fail(f"{name!r} is stored from more than one register")
        return value

    def _check(self, callee: str, results: list[str], arguments: list[str]) -> None:
        want_results, want = CALLEES[callee]
        if tuple(self.classes.get(r, "") for r in results) != want_results:
            raise self.t.fail(f"{callee} returns ({', '.join(want_results)})")
        if tuple(self.classes.get(a, "") for a in arguments) != want:
            raise self.t.fail(f"{callee} takes ({', '.join(want)})")
        missing = [a for a in arguments if a not in self.values]
        if missing:
            raise self.t.fail(f"parameter {missing[0]!r} of the call is never stored")


def refusal(callee: str) -> str:
    """Words for a call of something else."""
    return f"calls of {callee!r} are not supported, only of {', '.join(CALLEES)}"
