"""What a kernel's code depends on: the sources of all it calls and the constants it captures. The cache key stands
on it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from mimw.diagnostics import CompilationError
from mimw.frontend.source import KernelFunction, source_of
from mimw.ir.types import DType
from mimw.language.core import unwrap


class Dependencies:
    """`sources`: function name to its text, the kernel first; `constants`: dotted name to the text of a captured
    value.
    """

    __slots__ = ("_cells", "_mutable", "_names", "constants", "sources")

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}
        self.constants: dict[str, str] = {}
        self._names: list[tuple[Mapping[str, Any], str, Any]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._mutable: list[tuple[Any, str]] = []

    def key(self) -> tuple[Any, ...]:
        """Equal for equal dependencies; hashable."""
        return (tuple(self.sources.items()), tuple(self.constants.items()))

    def unchanged(self) -> bool:
        """Whether every captured name still holds what it held. Cheap: it stands in the path of each launch."""
        for space, name, value in self._names:
            if space.get(name, _GONE) is not value:
                return False
        for cell, value in self._cells:
            try:
                if cell.cell_contents is not value:
                    return False
            except ValueError:
                return False
        return all(_text(value) == text for value, text in self._mutable)

    def watch_name(self, space: Mapping[str, Any], name: str, value: Any) -> None:
        """Remember what a name of a module holds."""
        self._names.append((space, name, value))

    def watch_cell(self, cell: Any, value: Any) -> None:
        """Remember what a variable of an enclosing function holds."""
        self._cells.append((cell, value))

    def add_constant(self, name: str, value: Any) -> None:
        """A captured value."""
        text = self.constants[name] = _text(value)
        if not isinstance(value, _IMMUTABLE):
            self._mutable.append((value, text))


_GONE = object()
_IMMUTABLE = (bool, int, float, complex, str, bytes, type(None), DType)


def _text(value: Any) -> str:
    """A captured value as text: equal texts mean equal code."""
    cls: Any = value.__class__
    if hasattr(value, "tobytes"):  # the repr of a large array leaves out its middle
        return f"{cls.__qualname__} {getattr(value, 'dtype', '')} {getattr(value, 'shape', '')} {value.tobytes().hex()}"
    if cls.__repr__ is object.__repr__:  # says an address, which another process may use for another value
        return f"{cls.__module__}.{cls.__qualname__} {getattr(value, '__dict__', {})!r}"
    return repr(value)


def dependencies(fn: Callable[..., Any]) -> Dependencies:
    """All that the tile IR of `fn` depends on besides signature and options. Functions of mimw itself are left out."""
    out = Dependencies()
    _add_function(out, fn.fn if isinstance(fn, KernelFunction) else fn)
    return out


def _add_function(out: Dependencies, fn: Callable[..., Any]) -> None:
    name = f"{fn.__module__}.{fn.__qualname__}"
    if name in out.sources:
        return
    code = fn.__code__
    try:
        source = source_of(fn)
    except (CompilationError, SyntaxError):
        # Lambdas and generated functions: the byte code and constants stand for the text.
        out.sources[name] = f"{code.co_code.hex()} {code.co_consts!r} {code.co_names!r}"
        for n in code.co_names:
            _add_global(out, name, n, fn.__globals__)
        _add_cells(out, name, fn, set(code.co_freevars))
        return
    out.sources[name] = source.text
    for i, d in enumerate((*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())):
        _add_value(out, f"{name}:default{i}", d)
    local = set(code.co_varnames) | set(code.co_cellvars)
    cells = _add_cells(out, name, fn, set(code.co_freevars))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute):
            _add_chain(out, name, node, fn, local, cells)
        elif isinstance(node, ast.Name) and node.id not in local:
            _add_global(out, name, node.id, fn.__globals__)


def _add_global(out: Dependencies, function: str, name: str, space: dict[str, Any]) -> None:
    path = f"{function}:{name}"
    if name not in space or path in out.constants:
        return
    value = space[name]
    if not isinstance(value, ModuleType) and not _is_ours(value):
        out.watch_name(space, name, value)
    _add_value(out, path, value)


def _is_ours(value: Any) -> bool:
    """Functions and classes of mimw itself do not change while it runs."""
    return isinstance(value, (FunctionType, type)) and value.__module__.startswith("mimw.")


def _add_cells(out: Dependencies, name: str, fn: Callable[..., Any], free: set[str]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for n, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            cells[n] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet; reading it is an error of the trace
        if n in free:
            out.watch_cell(cell, cells[n])
            _add_value(out, f"{name}:{n}", cells[n])
    return cells


def _add_chain(
    out: Dependencies, name: str, node: ast.Attribute, fn: Callable[..., Any], local: set[str], cells: dict[str, Any]
) -> None:
    """A constant or function reached through modules and classes: ``config.BLOCK``."""
    parts: list[str] = []
    at: ast.expr = node
    while isinstance(at, ast.Attribute):
        parts.append(at.attr)
        at = at.value
    if not isinstance(at, ast.Name) or at.id in local:
        return
    obj: Any = cells.get(at.id, fn.__globals__.get(at.id))
    path = at.id
    for part in reversed(parts):
        if not isinstance(obj, (ModuleType, type)) or not hasattr(obj, part):
            return
        holder, obj = obj, getattr(obj, part)
        path += f".{part}"
        if not isinstance(obj, ModuleType) and not _is_ours(obj) and part in vars(holder):
            out.watch_name(vars(holder), part, vars(holder)[part])
    if not isinstance(obj, ModuleType):
        _add_value(out, f"{name}:{path}", obj)


def _add_value(out: Dependencies, name: str, value: Any) -> None:
    value = unwrap(value)
    if isinstance(value, ModuleType) or name in out.constants:
        return
    if isinstance(value, KernelFunction):
        _add_function(out, value.fn)
    elif isinstance(value, FunctionType):
        if not value.__module__.startswith("mimw."):
            _add_function(out, value)
    elif isinstance(value, type):
        _add_type(out, name, value)
    elif not callable(value):
        out.add_constant(name, value)


def _add_type(out: Dependencies, name: str, cls: type) -> None:
    """A record: its fields with their defaults, and its methods that are kernels."""
    fields = getattr(cls, "__dataclass_fields__", None) or getattr(cls, "_field_defaults", None)
    text = f"{cls.__module__}.{cls.__qualname__}"
    if fields is not None:
        out.constants[name] = text + repr([(k, getattr(f, "default", f)) for k, f in fields.items()])
    for member in vars(cls).values():
        if isinstance(member, KernelFunction):
            _add_function(out, member.fn)
