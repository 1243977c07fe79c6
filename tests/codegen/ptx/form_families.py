"""PTX forms by the thousand: every operation with every type, right and wrong; and accepted forms with one operand changed.

What is right is ptxas's word (`verdicts`), one call for all forms. Registers as in `ptx_forms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mimw.codegen.machine import Inst
from mimw.codegen.ptx.assemble import AssemblerError, assemble
from mimw.codegen.ptx.isa import check
from mimw.codegen.ptx.parser import PtxSyntaxError, parse
from mimw.diagnostics import InternalError
from mimw.target import get_target
from tests.codegen.ptx.ptx_forms import ACCEPTED, first_line, instructions, module_text

NEWEST = (9, 0)


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


INTS = ("u16", "s16", "u32", "s32", "u64", "s64")
TYPES = (*INTS, "u16x2", "s16x2", "f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "b16", "b32", "b64", "b8", "u8")
TWO = words("""add sub add.sat sub.sat add.cc mul.lo mul.hi mul min max min.relu max.relu min.NaN max.ftz max.ftz.NaN max.xorsign.abs div rem
div.rn div.full div.approx div.full.ftz mul24.lo add.rn add.rz add.ftz add.rn.sat mul.rn mul.rz mul.rn.ftz.sat sub.rn copysign and or xor""")
ONE = words("""abs neg abs.ftz neg.ftz not cnot popc clz brev bfind ex2.approx ex2.approx.ftz lg2.approx sin.approx cos.approx.ftz tanh.approx
rcp.approx rcp.rn rcp.approx.ftz sqrt.rn sqrt.approx sqrt.approx.ftz rsqrt.approx rsqrt.approx.ftz""")
THREE = words("""fma.rn fma.rz fma.rn.relu fma.rn.sat fma.rn.ftz fma.rn.ftz.relu fma.rn.oob fma.rn.oob.relu mad.lo mad.hi mad.rn mad24.lo mad.lo.cc
madc.hi mad.hi.sat madc.lo.cc sad""")
COMPARISONS = words("eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan")
SPACES = {
    "global": "[%rd0]",
    "local": "[%rd0]",
    "shared": "[%r0]",
    "shared::cluster": "[%r0]",
    "const": "[%rd0]",
    "param": "[par]",
}
NUMBERS = words("u8 s8 u16 s16 u32 s32 u64 s64 f16 bf16 f32 f64")
ROUNDINGS = ("", "rn.", "rz.ftz.", "rzi.", "rni.ftz.", "sat.", "rn.sat.", "rpi.sat.", "ftz.")
OTHERS = ("%h7", "%r7", "%rd7", "%f7", "%p3", "3", "[%rd7]", "{%r6, %r7}")


def register(kind: str, number: int) -> str:
    """A register for a value of a type."""
    if kind.endswith("x2"):
        return f"%r{number}"
    prefix = {"f32": "f", "f64": "fd", "bf16": "h"}.get(kind) or {"8": "r", "16": "h", "32": "r", "64": "rd"}[
        kind.lstrip("usbf")
    ]
    return f"%{prefix}{number}"


def _registers(kind: str, *numbers: int) -> str:
    return ", ".join(register(kind, n) for n in numbers)


def families() -> Iterator[str]:
    """All operations with all types."""
    for kind in TYPES:
        for names, count in ((ONE, 2), (TWO, 3), (THREE, 4)):
            yield from (f"{name}.{kind} {_registers(kind, *range(count))}" for name in names)
        yield from _comparisons(kind)
        yield from _memory(kind)
        yield from _bits(kind)
    for to in NUMBERS:
        for source in NUMBERS:
            yield from (f"cvt.{how}{to}.{source} {register(to, 0)}, {register(source, 1)}" for how in ROUNDINGS)


def _comparisons(kind: str) -> Iterator[str]:
    pair = _registers(kind, 1, 2)
    for name in COMPARISONS:
        yield f"setp.{name}.{kind} %p0, {pair}"
        yield f"setp.{name}.and.{kind} %p0, {pair}, %p1"
        yield f"set.{name}.u32.{kind} %r0, {pair}"
    yield f"selp.{kind} {_registers(kind, 0, 1, 2)}, %p0"
    yield f"slct.{kind}.s32 {_registers(kind, 0, 1, 2)}, %r3"
    yield f"mov.{kind} {_registers(kind, 0, 1)}"


def _memory(kind: str) -> Iterator[str]:
    for space, address in SPACES.items():
        yield f"ld.{space}.{kind} {register(kind, 1)}, {address}"
        if space not in ("const", "param"):
            yield f"st.{space}.{kind} {address}, {register(kind, 1)}"
    for count in (2, 4):
        yield f"ld.global.v{count}.{kind} {{{_registers(kind, *range(count))}}}, [%rd0]"
    for name in words("add min max and or xor exch inc dec"):
        yield f"atom.global.{name}.{kind} {register(kind, 1)}, [%rd0], {register(kind, 2)}"
        yield f"red.shared.{name}.{kind} [%r0], {register(kind, 2)}"
    yield f"atom.global.cas.{kind} {register(kind, 1)}, [%rd0], {_registers(kind, 2, 3)}"


def _bits(kind: str) -> Iterator[str]:
    yield from (f"redux.sync.{name}.{kind} {_registers(kind, 0, 1)}, -1" for name in ("add", "and", "min"))
    yield f"match.any.sync.{kind} %r0, {register(kind, 1)}, -1"
    yield f"shl.{kind} {_registers(kind, 0, 1)}, 3"
    yield f"shr.{kind} {_registers(kind, 0, 1)}, %r3"
    yield f"bfe.{kind} {_registers(kind, 0, 1)}, 3, 4"
    yield f"bfi.{kind} {_registers(kind, 0, 1, 2)}, 3, 4"


def changed(target: str) -> list[tuple[str, str]]:
    """(what stands there instead, form) for each accepted form of a target with one operand left out, added or changed."""
    out: dict[str, str] = {}
    for line in (line for _, name, block in ACCEPTED if name == target for line in instructions(block)):
        head, operands = _operands(line)
        changes = [("nothing", operands[:-1])] if operands else []
        changes.append(("one more", [*operands, "%r7"]))
        changes += [
            (o, [*operands[:i], o, *operands[i + 1 :]])
            for i in range(len(operands))
            for o in OTHERS
            if o != operands[i]
        ]
        for what, new in changes:
            out.setdefault(f"{head} {', '.join(new)}".strip(), what)
    return [(what, form) for form, what in out.items()]


def _operands(line: str) -> tuple[str, list[str]]:
    head, _, rest = line.partition(" ")
    return head, [part.strip() for part in re.findall(r"(?:\[[^\]]*\]|\{[^}]*\}|[^,])+", rest)]


def verdicts(target: str, lines: list[str]) -> tuple[list[bool], list[bool]]:
    """Which forms ptxas takes, and which our parser and table do."""
    refused: set[int] = set()
    try:
        assemble(module_text(target, NEWEST, lines), target)
    except AssemblerError as error:
        refused = {int(n) - first_line() for n in re.findall(r"line (\d+);", error.log)}
    return [i not in refused for i in range(len(lines))], [ours(target, line) for line in lines]


def ours(target: str, line: str) -> bool:
    """Whether the parser and the table take a form."""
    try:
        inst = parse(module_text(target, NEWEST, [line])).entries[0].body[0]
        assert isinstance(inst, Inst)
        check(inst, get_target(target))
    except (InternalError, PtxSyntaxError):
        return False
    return True
