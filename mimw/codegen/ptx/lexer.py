"""Tokens of PTX text, with their lines: what the parsers of module and body read from.

Owns the token pattern, comments (dropped here), numbers and `PtxSyntaxError`.
"""

from __future__ import annotations

import re
import struct

from mimw.codegen.machine import Imm

_TOKEN = re.compile(
    r"0[fF][0-9a-fA-F]{8}(?!\w)|0[dD][0-9a-fA-F]{16}(?!\w)|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?"
    r"|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?"
    r"|\.[A-Za-z_]\w*|[%$_A-Za-z][\w$%]*(?:(?:::|\.)[\w$%]+)*|\"[^\"]*\"|[^\s]"
)
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.S)


class PtxSyntaxError(Exception):
    """Text that the parser cannot read; `line` is its 1-based line in the text."""

    def __init__(self, line: int, message: str, text: str = "") -> None:
        shown = f"\n    {text.strip()}" if text.strip() else ""
        super().__init__(f"PTX line {line}: {message}{shown}")
        self.line = line
        self.message = message


def _int(token: str) -> int:
    digits = token.rstrip("Uu")
    if digits[:2] in ("0x", "0X", "0b", "0B"):
        return int(digits, 0)
    return int(digits, 8) if digits[0] == "0" and len(digits) > 1 else int(digits)


class Tokens:
    """The tokens of a text and the place `pos` of the next one; the last token is empty."""

    def __init__(self, text: str) -> None:
        self.source = text
        self.tokens: list[str] = []
        self.lines: list[int] = []
        self.pos = 0
        self._tokenize(text)

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

    def fail(self, message: str) -> PtxSyntaxError:
        """The error that says `message` about the line of the next token."""
        line = self.lines[min(self.pos, len(self.lines) - 1)]
        return PtxSyntaxError(line, message, self.source.split("\n")[line - 1])

    def take(self) -> str:
        """The next token."""
        token = self.tokens[self.pos]
        if not token:
            raise self.fail("the text ends too early")
        self.pos += 1
        return token

    def expect(self, token: str) -> None:
        """Take the next token, which must be `token`."""
        if self.tokens[self.pos] != token:
            raise self.fail(f"expected {token!r}, found {self.tokens[self.pos]!r}")
        self.pos += 1

    def accept(self, token: str) -> bool:
        """Take the next token if it is `token`; says whether it was."""
        if self.tokens[self.pos] == token:
            self.pos += 1
            return True
        return False

    def integer(self) -> int:
        """The integer that comes next, perhaps negative."""
        negative = self.accept("-")
        token = self.take()
        if not token[0].isdigit():
            self.pos -= 1
            raise self.fail(f"expected an integer, found {token!r}")
        value = _int(token)
        return -value if negative else value

    def peek(self, ahead: int = 0) -> str:
        """A coming token without taking it; empty past the end."""
        place = self.pos + ahead
        return self.tokens[place] if place < len(self.tokens) else ""

    def skip_braces(self) -> None:
        """Pass over a balanced pair of braces."""
        depth = 0
        while True:
            token = self.take()
            depth += (token == "{") - (token == "}")
            if depth == 0:
                return

    def skip_statement(self) -> None:
        """Pass over everything up to a semicolon."""
        while self.take() != ";":
            pass

    def number(self) -> Imm:
        """The number that comes next, perhaps negative."""
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
