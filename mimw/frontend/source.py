"""Source text of Python functions: their syntax tree and where each node stands in its file.

The only place that does line arithmetic: trees are parsed from a slice of the file, and `Source.loc` maps a node back
to the file's line and column (1-based, in characters).
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from mimw.diagnostics import CompilationError, Loc


class KernelFunction:
    """What the frontend knows of a decorated kernel: the Python function under it. The decorator's class inherits
    from this.
    """

    fn: Callable[..., Any]

    def version(self) -> int:
        """A number for what the kernel captures; it changes where that does."""
        return 0


class Source:
    """A function's tree and text. `shift` is what is added to a node's line to get the file's line."""

    __slots__ = ("ascii", "file", "first_line", "lines", "name", "shift", "text", "tree")

    def __init__(
        self, file: str, name: str, tree: ast.FunctionDef, shift: int, lines: list[str], first_line: int
    ) -> None:
        self.file = file
        self.name = name
        self.tree = tree
        self.shift = shift
        self.lines = lines
        self.first_line = first_line
        self.text = "".join(lines)
        self.ascii = self.text.isascii()

    def loc(self, node: ast.AST, call_site: Loc | None = None) -> Loc:
        """The place of a node in the file."""
        at: Any = node
        line: int = at.lineno + self.shift
        col: int = at.col_offset
        end: int = at.end_col_offset if at.end_lineno == at.lineno else 0
        if not self.ascii:
            col, end = self._characters(line, col), self._characters(line, end)
        return Loc(self.file, line, col + 1, end + 1 if end else 0, call_site)

    def _characters(self, line: int, column: int) -> int:
        """Trees count columns in bytes of UTF-8; people count characters."""
        text = self.lines[line - self.first_line]
        return len(text.encode()[:column].decode(errors="replace"))


_CACHE: WeakKeyDictionary[Callable[..., Any], Source] = WeakKeyDictionary()
_INNER: WeakKeyDictionary[CodeType, Source] = WeakKeyDictionary()
"""Functions inside of kernels: their trees are parts of the kernel's."""


def remember(code: CodeType, source: Source) -> None:
    """Say what the source of functions with this code is."""
    _INNER[code] = source


def source_of(fn: Callable[..., Any]) -> Source:
    """The source of a Python function; `CompilationError` when it has none (or is a lambda)."""
    found = _CACHE.get(fn) or _INNER.get(fn.__code__)
    if found is None:
        found = _CACHE[fn] = _read(fn)
    return found


def def_loc(fn: Callable[..., Any]) -> Loc:
    """Where a function's definition starts."""
    code = fn.__code__
    return Loc(code.co_filename, code.co_firstlineno)


def _read(fn: Callable[..., Any]) -> Source:
    code = fn.__code__
    if fn.__name__ == "<lambda>":
        raise CompilationError("lambda", "a lambda is no kernel", def_loc(fn), hint="write a def under @mimw.kernel")
    lines = linecache.getlines(code.co_filename, fn.__globals__)
    first = code.co_firstlineno
    if not lines or first > len(lines):
        raise CompilationError(
            "no-source",
            f"the source of {fn.__name__} is not at hand",
            def_loc(fn),
            hint="kernels are read from their file; define them in one, not in a bare interpreter or exec()",
        )
    return _parse_slice(fn, lines, first) or _parse_file(fn, lines, first)


def _parse_slice(fn: Callable[..., Any], lines: list[str], first: int) -> Source | None:
    """Parse only the function's lines, found by indentation; None when that does not give one function."""
    start = first - 1
    indent = len(lines[start]) - len(lines[start].lstrip())
    end = start
    while end < len(lines) and not lines[end].lstrip().startswith(("def ", "async def ")):
        end += 1
    last = end = end + 1
    while end < len(lines):
        text = lines[end].strip()
        if text and not text.startswith("#"):
            depth = len(lines[end]) - len(lines[end].lstrip())
            if depth <= indent and not text.startswith((")", "]", "}")):
                break
            last = end + 1
        end += 1
    block = lines[start:last]
    text = "".join(block)
    wrapped = "if 1:\n" + text if indent else text
    try:
        module = ast.parse(wrapped)
    except SyntaxError:
        return None
    body = module.body
    if indent and len(body) == 1 and isinstance(body[0], ast.If):
        body = body[0].body
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef) or body[0].name != fn.__name__:
        return None
    return Source(fn.__code__.co_filename, fn.__name__, body[0], start - (1 if indent else 0), block, first)


def _parse_file(fn: Callable[..., Any], lines: list[str], first: int) -> Source:
    """Parse the whole file and find the function by name and line."""
    module = ast.parse("".join(lines))
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name == fn.__name__:
            top = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            if top == first:
                block = lines[top - 1 : node.end_lineno]
                return Source(fn.__code__.co_filename, fn.__name__, node, 0, block, first)
    raise CompilationError(
        "no-source", f"no function {fn.__name__} at this line of {fn.__code__.co_filename}", def_loc(fn),
        hint="kernels are plain functions (def); the file may have changed since it was imported",
    )  # fmt: skip
