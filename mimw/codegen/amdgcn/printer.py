"""An `AmdgcnModule` to text in LLVM's syntax, directives of the kernel descriptor included.

Owns `print_module`, `print_function`, and how operands are spelled. Source lines stand as comments in front of their instructions, the
names of values behind the instructions that make them. Assumes physical registers (names); prints virtual ones as ``%name``. Printing is
stable: parsing the text and printing it again gives the same text, comments apart.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.isa import inline, resolve
from mimw.codegen.amdgcn.module import AmdgcnModule, KernelFacts
from mimw.codegen.machine import Comment, FlatFunction, Imm, Inst, Label, LabelRef, Not, Operand, Reg, Symbol
from mimw.diagnostics import InternalError, Loc

TRIPLE = "amdgcn-amd-amdhsa"
COMMENT_COLUMN = 56
"""Where comments behind instructions begin."""

_FLOATS = {
    "f32": {
        0x3F000000: "0.5", 0xBF000000: "-0.5", 0x3F800000: "1.0", 0xBF800000: "-1.0", 0x40000000: "2.0", 0xC0000000: "-2.0",
        0x40800000: "4.0", 0xC0800000: "-4.0", 0x3E22F983: "0.15915494",
    },
    "f64": {
        0x3FE0 << 48: "0.5", 0xBFE0 << 48: "-0.5", 0x3FF0 << 48: "1.0", 0xBFF0 << 48: "-1.0", 0x4000 << 48: "2.0", 0xC000 << 48: "-2.0",
        0x4010 << 48: "4.0", 0xC010 << 48: "-4.0",
    },
    "f16": {
        0x3800: "0.5", 0xB800: "-0.5", 0x3C00: "1.0", 0xBC00: "-1.0", 0x4000: "2.0", 0xC000: "-2.0", 0x4400: "4.0", 0xC400: "-4.0",
        0x3118: "0.15915494",
    },
}  # fmt: skip


def print_module(module: AmdgcnModule) -> str:
    """The text of the module."""
    return print_with_places(module)[0]


def print_with_places(module: AmdgcnModule) -> tuple[str, list[Loc | None]]:
    """(text, for each of its lines the source line that it comes from)."""
    name = module.function.name
    lines = [
        f'.amdgcn_target "{TRIPLE}--{module.target}"',
        ".amdhsa_code_object_version 5",
        ".text",
        f".globl {name}",
        ".p2align 8",
        f".type {name},@function",
        f"{name}:",
    ]
    places: list[Loc | None] = [None] * len(lines)
    for text, loc in _body(module.function):
        lines.append(text)
        places.append(loc)
    lines += [f".Lend_{name}:", f".size {name}, .Lend_{name}-{name}", *_descriptor(name, module.facts)]
    return "\n".join(lines) + "\n", places


def print_function(function: FlatFunction) -> str:
    """The instructions of a flat function, without directives."""
    return "".join(f"{text}\n" for text, _ in _body(function))


def _body(function: FlatFunction) -> "list[tuple[str, Loc | None]]":
    out: list[tuple[str, Loc | None]] = []
    for item in function.body:
        if isinstance(item, Label):
            out.append((f"{item.name}:", None))
        elif isinstance(item, Comment):
            out.append((f"  ; {_one_line(item.text)}", None))
        else:
            out.append((_with_names(item), item.loc))
    return out


def _one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\r", " ")


def _with_names(inst: Inst) -> str:
    """An instruction with the names of the values that it makes."""
    text = "  " + print_inst(inst)
    hints = [o.hint for o in inst.operands[: inst.num_results] if isinstance(o, Reg) and o.hint]
    return f"{text:<{COMMENT_COLUMN}} ; {', '.join(hints)}" if hints else text


def print_inst(inst: Inst) -> str:
    """One instruction; in SSA form a guard stands in front."""
    row = resolve(inst.opcode)
    count = len(inst.operands)
    free = any(s.kind in ("T", "...") for s in row.slots)
    while count and not free and _modifier(inst.operands[count - 1]):
        count -= 1
    if inst.opcode == "s_waitcnt":
        return f"s_waitcnt {' '.join(print_operand(o) for o in inst.operands)}"
    text = row.text
    if count:
        text += " " + ", ".join(print_operand(o) for o in inst.operands[:count])
    for operand in inst.operands[count:]:
        text += " " + print_operand(operand)
    if row.suffix:
        text += " " + row.suffix
    return f"@{print_operand(inst.guard)} {text}" if inst.guard is not None else text


def _modifier(operand: Operand) -> bool:
    return isinstance(operand, Symbol) and operand.name != "off"


def print_operand(operand: Operand) -> str:
    """An operand as LLVM reads it."""
    if isinstance(operand, Reg):
        return operand.name or f"%{operand.cls}_{operand.hint or id(operand)}"
    if isinstance(operand, Imm):
        return _constant(operand)
    if isinstance(operand, Not):
        return f"-{print_operand(operand.reg)}"
    if isinstance(operand, (Symbol, LabelRef)):
        return operand.name
    raise InternalError(f"AMDGCN has no operand {operand!r}")


def _constant(value: Imm) -> str:
    known = _FLOATS.get(value.cls, {}).get(value.value)
    if known is not None:
        return known
    if value.cls != "int" and not inline(value):
        return f"0x{value.value & 0xFFFFFFFF:x}"
    if value.value >= 0xFFFFFFF0 and value.cls == "f32":
        return str(value.value - (1 << 32))
    return str(value.value) if -0x1000 < value.value < 0x1000 else f"0x{value.value & 0xFFFFFFFF:x}"


def _descriptor(name: str, facts: KernelFacts) -> list[str]:
    """The directives from which LLVM makes the kernel's descriptor."""
    accum = max(4, -(-facts.vgprs // 4) * 4)
    ids = facts.workgroup_ids
    return [
        ".rodata",
        ".p2align 6",
        f".amdhsa_kernel {name}",
        f"  .amdhsa_group_segment_fixed_size {facts.lds_bytes}",
        f"  .amdhsa_private_segment_fixed_size {facts.scratch_bytes}",
        f"  .amdhsa_enable_private_segment {int(facts.scratch_bytes > 0)}",
        f"  .amdhsa_kernarg_size {facts.kernarg_bytes}",
        "  .amdhsa_user_sgpr_count 2",
        "  .amdhsa_user_sgpr_kernarg_segment_ptr 1",
        *[f"  .amdhsa_system_sgpr_workgroup_id_{axis} {int(axis in ids)}" for axis in "xyz"],
        "  .amdhsa_system_vgpr_workitem_id 0",
        f"  .amdhsa_next_free_vgpr {accum + facts.agprs if facts.agprs else max(1, facts.vgprs)}",
        f"  .amdhsa_accum_offset {accum}",
        f"  .amdhsa_next_free_sgpr {max(1, facts.sgprs)}",
        "  .amdhsa_reserve_vcc 1",
        "  .amdhsa_float_denorm_mode_32 3",
        "  .amdhsa_float_denorm_mode_16_64 3",
        "  .amdhsa_ieee_mode 0",
        ".end_amdhsa_kernel",
    ]
