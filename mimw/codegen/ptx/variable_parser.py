"""Variable declarations, parameters aside: ``.shared .align 16 .b8 buffer[1024];`` and its like, with initialisers."""

from __future__ import annotations

from mimw.codegen.machine import Imm, Symbol
from mimw.codegen.ptx.isa import type_bits
from mimw.codegen.ptx.lexer import Tokens
from mimw.codegen.ptx.module import Variable


def read_variables(t: Tokens, linkage: str) -> list[Variable]:
    """The variables of one declaration, which starts with its space."""
    space = t.take()[1:]
    align, cls, lanes = 0, "", 1
    while t.peek().startswith("."):
        word = t.take()
        if word == ".align":
            align = t.integer()
        elif word in (".v2", ".v4"):
            lanes = int(word[2:])
        elif word == ".attribute":
            while t.take() != ")":
                pass
        else:
            cls = word[1:]
    found = [_variable(t, space, cls, align, lanes, linkage)]
    while t.accept(","):
        found.append(_variable(t, space, cls, align, lanes, linkage))
    t.expect(";")
    return found


def _variable(t: Tokens, space: str, cls: str, align: int, lanes: int, linkage: str) -> Variable:
    name = t.take()
    element = type_bytes(t, cls) * lanes
    count, array, unsized = 1, False, False
    while t.accept("["):
        array = True
        if t.accept("]"):
            unsized = True
        else:
            count *= t.integer()
            t.expect("]")
    init = _initialiser(t) if t.accept("=") else None
    if unsized:
        count = len(init) if init is not None else 0
    return Variable(space, name, cls, count * element, align, linkage, init, array)


def type_bytes(t: Tokens, cls: str) -> int:
    """Bytes of a value of type `cls`."""
    try:
        return max(1, type_bits(cls) // 8)
    except KeyError:
        raise t.fail(f"unknown type .{cls}") from None


def _initialiser(t: Tokens) -> list[Imm | Symbol]:
    if not t.accept("{"):
        return [_initial_value(t)]
    items: list[Imm | Symbol] = []
    while not t.accept("}"):
        if t.peek() == "{":
            items += _initialiser(t)
        else:
            items.append(_initial_value(t))
        t.accept(",")
    return items


def _initial_value(t: Tokens) -> Imm | Symbol:
    token = t.peek()
    if token == "-" or token[0].isdigit():
        return t.number()
    t.pos += 1
    if token != "generic":
        return Symbol(token)
    t.expect("(")
    name = t.take()
    t.expect(")")
    return Symbol(f"generic({name})")
