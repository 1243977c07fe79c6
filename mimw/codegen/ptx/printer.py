"""A `PtxModule` to PTX text.

Owns `print_module`, `name_registers` and the choice of the smallest `.version`. Assumes that operands fit their forms
(`isa.check` says so): it prints what it is given. Printing is stable: parsing the text and printing it again gives
the same text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mimw.codegen.machine import (
    Addr,
    Comment,
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
from mimw.codegen.ptx.isa import form_of, resolve, type_bits
from mimw.codegen.ptx.module import Extern, PtxModule, Variable
from mimw.codegen.ptx.operands import SPECIAL_REGISTERS
from mimw.diagnostics import InternalError, Loc
from mimw.target import TARGETS

# Names of registers without a hint, by class.
_PREFIXES = {
    "pred": "p", "b8": "rb", "b16": "h", "b32": "r", "b64": "rd", "b128": "q", "f16": "h", "f32": "f", "f64": "fd",
    "u32": "r", "s32": "r", "u64": "rd", "s64": "rd", "u16": "h", "s16": "h",
}  # fmt: skip
_AUTOMATIC = re.compile(r"(p|rb|h|r|rd|q|f|fd)\d+")
_NUMBERED = re.compile(r"(.*?)(0|[1-9]\d*)$")
_DIRECTIVE_VERSIONS = {
    "explicitcluster": (7, 8),
    "reqnctapercluster": (7, 8),
    "maxclusterrank": (7, 8),
    "blocksareclusters": (9, 0),
}


def print_module(module: PtxModule) -> str:
    """The text of `module`; registers without a name get one first."""
    files = _all_files(module)
    out: list[str] = []
    major, minor = module.version or smallest_version(module)
    out.append(f".version {major}.{minor}\n.target {module.target}\n.address_size {module.address_size}\n\n")
    for index, name in enumerate(files, 1):
        out.append(f'.file {index} "{name}"\n')
    for extern in module.externs:
        out.append(_extern(extern))
    for variable in module.variables:
        out.append(_variable(variable))
    numbers = {name: index for index, name in enumerate(files, 1)}
    for entry in module.entries:
        name_registers(entry)
        out.append("\n")
        _Entry(entry, numbers, out).print()
    return "".join(out)


def smallest_version(module: PtxModule) -> tuple[int, int]:
    """The smallest `.version` that knows the target and every form and directive of `module`."""
    target = TARGETS.get(module.target) or TARGETS.get(module.target + "a")
    version = target.ptx_version if target is not None else (7, 0)
    for entry in module.entries:
        for item in entry.body:
            if isinstance(item, Inst):
                version = max(version, form_of(item).ptx)
        for directive in entry.directives:
            version = max(version, _DIRECTIVE_VERSIONS.get(directive, (6, 0)))
        if sum(size for _, _, size, _ in entry.params) > 4352:
            version = max(version, (8, 1))
    return version


def _all_files(module: PtxModule) -> list[str]:
    files = dict.fromkeys(module.files)
    for entry in module.entries:
        for item in entry.body:
            if isinstance(item, Inst) and item.loc is not None and item.loc.line > 0:
                files[item.loc.file] = None
    return list(files)


def _extern(extern: Extern) -> str:
    results = f"({', '.join(_param(p) for p in extern.results)}) " if extern.results else ""
    params = ", ".join(_param(p) for p in extern.params)
    return f".extern .func {results}{extern.name} ({params}){' .noreturn' if extern.noreturn else ''};\n"


def _param(param: tuple[str, str, int, int]) -> str:
    cls, name, size, align = param
    natural = type_bits(cls) // 8
    if size != natural or align != natural:
        return f".param .align {align} .{cls} {name}[{size // natural}]"
    return f".param .{cls} {name}"


def _variable(var: Variable) -> str:
    linkage = f".{var.linkage} " if var.linkage else ""
    align = f".align {var.align} " if var.align else ""
    size = ""
    if var.array:
        size = f"[{var.size // max(1, type_bits(var.cls) // 8)}]" if var.size else "[]"
    init = ""
    if var.init is not None:
        items = ", ".join(_print_operand(item) for item in var.init)
        init = f" = {{{items}}}" if var.array else f" = {items}"
    return f"{linkage}.{var.space} {align}.{var.cls} {var.name}{size}{init};\n"


# --- names


def name_registers(fn: FlatFunction) -> None:
    """Give every register of `fn` that has none a name: from its hint where it has one, unique in the function."""
    taken = {reg.name for reg in fn.regs if reg.name}
    hints: dict[str, list[Reg]] = {}
    plain: dict[str, int] = {}
    for reg in fn.regs:
        if reg.name:
            continue
        hint = re.sub(r"\W", "_", reg.hint).strip("_")
        if hint:
            hints.setdefault(hint, []).append(reg)
            continue
        prefix = "%" + _PREFIXES.get(reg.cls, reg.cls + "_")
        number = plain.get(prefix, 0)
        while f"{prefix}{number}" in taken:
            number += 1
        reg.name = f"{prefix}{number}"
        taken.add(reg.name)
        plain[prefix] = number + 1
    for hint, regs in hints.items():
        _name_by_hint(hint, regs, taken)


def _name_by_hint(hint: str, regs: list[Reg], taken: set[str]) -> None:
    alone = len(regs) == 1 and hint not in SPECIAL_REGISTERS and not _AUTOMATIC.fullmatch(hint)
    if alone and f"%{hint}" not in taken:
        regs[0].name = f"%{hint}"
        taken.add(regs[0].name)
        return
    number = 0
    for reg in regs:
        while f"%{hint}_{number}" in taken:
            number += 1
        reg.name = f"%{hint}_{number}"
        taken.add(reg.name)


def _declarations(fn: FlatFunction) -> list[str]:
    """One `.reg` line a class and dense range of numbered names, one a class for the other names."""
    ranges: dict[tuple[str, str], set[int]] = {}
    for reg in fn.regs:
        found = _NUMBERED.match(reg.name)
        if found is not None:
            ranges.setdefault((reg.cls, found[1]), set()).add(int(found[2]))
    dense = {
        key: len(numbers) for key, numbers in ranges.items() if max(numbers) == len(numbers) - 1 and len(numbers) > 1
    }
    lines = [f"\t.reg .{cls} {prefix}<{count}>;\n" for (cls, prefix), count in sorted(dense.items())]
    others: dict[str, list[str]] = {}
    for reg in fn.regs:
        found = _NUMBERED.match(reg.name)
        if found is None or (reg.cls, found[1]) not in dense:
            others.setdefault(reg.cls, []).append(reg.name)
    for cls, names in sorted(others.items()):
        for i in range(0, len(names), 16):
            lines.append(f"\t.reg .{cls} {', '.join(names[i : i + 16])};\n")
    return lines


# --- entries


class _Entry:
    """Prints one entry into a list of strings."""

    def __init__(self, fn: FlatFunction, files: dict[str, int], out: list[str]) -> None:
        self.fn = fn
        self.files = files
        self.out = out
        self.loc: Loc | None = None

    def print(self) -> None:
        fn, out = self.fn, self.out
        params = ",\n".join("\t" + self._param(*param) for param in fn.params)
        out.append(f".visible .entry {fn.name}(\n{params}\n)\n" if params else f".visible .entry {fn.name}()\n")
        for name, values in fn.directives.items():
            out.append(f".{name} {', '.join(str(v) for v in values)}".rstrip() + "\n")
        out.append("{\n")
        out += _declarations(fn)
        for space, variables in (("shared", fn.shared), ("local", fn.local)):
            for name, align, size in variables:
                out.append(f"\t.{space} .align {align or 1} .b8 {name}[{size}];\n")
        out.append("\n")
        for item in fn.body:
            if isinstance(item, Inst):
                self._inst(item)
            elif isinstance(item, Label):
                if item.pragma:
                    out.append(f'\t.pragma "{item.pragma}";\n')
                out.append(f"{item.name}:\n")
            else:
                self._comment(item)
        out.append("}\n")

    def _param(self, cls: str, name: str, size: int, align: int) -> str:
        if name in self.fn.pointers:
            space, alignment = self.fn.pointers[name]
            where = f" .{space}" if space else ""
            return f".param .{cls} .ptr{where} .align {alignment or 1} {name}"
        return _param((cls, name, size, align))

    def _comment(self, comment: Comment) -> None:
        for line in comment.text.splitlines() or [""]:
            self.out.append(f"\t// {line.rstrip()}".rstrip() + "\n")

    def _inst(self, inst: Inst) -> None:
        out, loc = self.out, inst.loc
        if loc is not None and loc is not self.loc and loc.file in self.files:
            if loc != self.loc:
                out.append(f"\t.loc {self.files[loc.file]} {loc.line} {loc.col}\n")
            self.loc = loc
        if inst.opcode.startswith("brx"):
            self._table(inst)
        guard = ""
        if inst.guard is not None:
            guard = f"@!{inst.guard.name} " if inst.guard_neg else f"@{inst.guard.name} "
        if inst.opcode.partition(".")[0] == "call":
            self._call(inst, guard)
            return
        operands = ", ".join([_print_operand(operand) for operand in inst.operands])
        out.append(f"\t{guard}{inst.opcode} {operands};\n" if operands else f"\t{guard}{inst.opcode};\n")

    def _call(self, inst: Inst, guard: str) -> None:
        """The call sequence: arguments through `.param` variables of a scope of its own."""
        out = self.out
        slots = resolve(inst.opcode).operands
        result, callee, *arguments = inst.operands
        out.append("\t{\n")
        for i, (argument, slot) in enumerate(zip(arguments, slots[2:], strict=True)):
            out.append(f"\t.param .{slot.cls} param{i};\n")
            out.append(f"\tst.param.{slot.cls} [param{i}], {_print_operand(argument)};\n")
        out.append(f"\t.param .{slots[0].cls} retval;\n")
        names = ", ".join(f"param{i}" for i in range(len(arguments)))
        out.append(f"\t{guard}{inst.opcode} (retval), {_print_operand(callee)}, ({names});\n")
        if not isinstance(result, Sink):
            out.append(f"\tld.param.{slots[0].cls} {_print_operand(result)}, [retval];\n")
        out.append("\t}\n")

    def _table(self, inst: Inst) -> None:
        table = inst.operands[-1]
        if not isinstance(table, LabelRef) or table.name not in self.fn.tables:
            raise InternalError(f"{inst.opcode} names no branch table", inst.loc)
        self.out.append(f"{table.name}:\n\t.branchtargets {', '.join(self.fn.tables[table.name])};\n")


def _imm(operand: Imm) -> str:
    if operand.cls == "f32":
        return f"0f{operand.value:08X}"
    if operand.cls == "f64":
        return f"0d{operand.value:016X}"
    return str(operand.value)


def _addr(operand: Addr) -> str:
    base = _print_operand(operand.base)
    if operand.offset:
        base = f"{base}+{operand.offset}"
    if operand.coords is not None:
        return f"[{base}, {{{', '.join([_print_operand(c) for c in operand.coords])}}}]"
    return f"[{base}]"


def _vec(operand: Vec) -> str:
    return "{" + ", ".join([_print_operand(item) for item in operand.items]) + "}"


def _pair(operand: Pair) -> str:
    return f"{_print_operand(operand.first)}|{_print_operand(operand.second)}"


def _name(operand: Reg | Special | Symbol | LabelRef) -> str:
    return operand.name


def _not(operand: Not) -> str:
    return f"!{operand.reg.name}"


def _sink(operand: Sink) -> str:
    del operand
    return "_"


_PRINTERS: dict[type, Callable[..., str]] = {
    Reg: _name,
    Special: _name,
    Symbol: _name,
    LabelRef: _name,
    Imm: _imm,
    Addr: _addr,
    Vec: _vec,
    Pair: _pair,
    Not: _not,
    Sink: _sink,
}


def _print_operand(operand: Operand) -> str:
    return _PRINTERS[type(operand)](operand)
