"""A PTX module as data: header, variables, entries. The printer prints it, the parser makes it."""

from __future__ import annotations

from mimw.codegen.machine import FlatFunction, Imm, Symbol


class Variable:
    """A module-level variable.

    `space`: global, const or shared. `cls`: element type (``b8``), `align` and `size` in bytes (size 0: an
    ``.extern`` array of the size given at launch), `init`: its elements in order (`Imm`, or `Symbol` for an address;
    missing ones are zero), or None. `linkage`: "", ``extern``, ``visible``, ``weak``, ``common``. `array`: whether it
    is declared with brackets.
    """

    __slots__ = ("align", "array", "cls", "init", "linkage", "name", "size", "space")

    def __init__(
        self,
        space: str,
        name: str,
        cls: str,
        size: int,
        align: int = 0,
        linkage: str = "",
        init: list[Imm | Symbol] | None = None,
        array: bool = True,
    ) -> None:
        self.space = space
        self.name = name
        self.cls = cls
        self.size = size
        self.align = align
        self.linkage = linkage
        self.init = init
        self.array = array


class Extern:
    """A device function that is declared here and defined by the driver (``vprintf``).

    `results` and `params` are (class, name, byte size, alignment) in order, as an entry's parameters.
    """

    __slots__ = ("name", "noreturn", "params", "results")

    def __init__(
        self,
        name: str,
        results: list[tuple[str, str, int, int]],
        params: list[tuple[str, str, int, int]],
        noreturn: bool = False,
    ) -> None:
        self.name = name
        self.results = results
        self.params = params
        self.noreturn = noreturn


class PtxModule:
    """A module: `version` (8, 0), `target` ("sm_90a"), `entries` in order, `variables`, `externs` (device functions that are
    only declared), `files` (the name of every `.file`).

    `version` None lets the printer state the smallest that the target and the instructions need. `skipped` names the
    device functions (`.func` with a body) that the parser passed over.
    """

    __slots__ = ("address_size", "entries", "externs", "files", "skipped", "target", "variables", "version")

    def __init__(self, target: str, version: tuple[int, int] | None = None) -> None:
        self.target = target
        self.version = version
        self.address_size = 64
        self.entries: list[FlatFunction] = []
        self.variables: list[Variable] = []
        self.externs: list[Extern] = []
        self.files: list[str] = []
        self.skipped: list[str] = []

    def entry(self, name: str | None = None) -> FlatFunction:
        """The entry of that name, or the only one; `KeyError` lists the names otherwise."""
        if name is None and len(self.entries) == 1:
            return self.entries[0]
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise KeyError(f"no entry {name!r}; the module has {', '.join(e.name for e in self.entries) or 'none'}")
