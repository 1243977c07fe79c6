"""A program as the simulator runs it: instructions in a row, where branches lead, and what each kernel asks for at launch.

Two sources: assembly text (labels, `.amdhsa_` directives, metadata) and code objects (the disassembler's text, the kernel
descriptors). Owns the reading of both; assumes `decode` for single instructions. Knows no instruction's meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mimw.diagnostics import Loc
from mimw.sim.amdgcn.decode import DecodeError, Inst, Word, source_of

_LABEL = re.compile(r'\s*("?[\w.$@]+"?):\s*(.*)')
_AMDHSA = re.compile(r"\.amdhsa_(\w+)\s+(.+)")
_BRANCHES = re.compile(r"s_(c?branch\w*|call_b64)$")


class KernelArg:
    """One explicit or hidden argument: offset and size in the kernarg segment in bytes, kind as the metadata says."""

    __slots__ = ("kind", "offset", "size")

    def __init__(self, offset: int, size: int, kind: str) -> None:
        self.offset, self.size, self.kind = offset, size, kind


class KernelInfo:
    """What one kernel asks for: entry (index of its first instruction), bytes of LDS, scratch and kernarg, which user and
    system registers are set up, MODE (float mode, dx10_clamp, ieee), arguments (empty: the metadata says nothing)."""

    __slots__ = (
        "args", "dx10_clamp", "entry", "float_mode", "ieee", "kernarg_size", "lds", "name", "preload", "scratch",
        "user_sgprs", "workgroup_ids", "workgroup_info", "workitem_dims", "flat_scratch", "user_layout",
    )  # fmt: skip

    def __init__(self, name: str, entry: int) -> None:
        self.name, self.entry = name, entry
        self.lds = self.scratch = self.kernarg_size = 0
        self.user_layout: list[tuple[str, int]] = []
        self.user_sgprs = self.preload = 0
        self.workgroup_ids: tuple[bool, bool, bool] = (True, False, False)
        self.workgroup_info = self.flat_scratch = False
        self.workitem_dims = 1
        self.float_mode, self.dx10_clamp, self.ieee = 0xF0, True, True
        self.args: list[KernelArg] = []


class Program:
    """`insts` in address order, `target` of each branch by its index, `kernels` by name; `arch` is ``gfx942`` or ``gfx950``."""

    __slots__ = ("arch", "by_address", "insts", "kernels", "labels")

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self.insts: list[Inst] = []
        self.labels: dict[str, int] = {}
        self.by_address: dict[int, int] = {}
        self.kernels: dict[str, KernelInfo] = {}

    def kernel(self, name: str | None) -> KernelInfo:
        """The kernel of that name (None: the only one); `KeyError` lists what there is."""
        if name is None and len(self.kernels) == 1:
            return next(iter(self.kernels.values()))
        if name not in self.kernels:
            raise KeyError(f"no kernel {name!r}; the program has {', '.join(self.kernels) or 'none'}")
        return self.kernels[name]

    def target(self, index: int) -> int:
        """The index that the branch at `index` leads to."""
        inst = self.insts[index]
        op = inst.operands[-1]
        if isinstance(op, Word):
            if op.text not in self.labels:
                raise DecodeError(f"label {op.text} is nowhere: `{inst.text}`")
            return self.labels[op.text]
        offset = getattr(op, "value", None)
        if not isinstance(offset, int):
            raise DecodeError(f"`{inst.text}` leads nowhere")
        offset = (offset & 0xFFFF) - ((offset & 0x8000) << 1)
        address = inst.address + 4 + 4 * offset
        if address not in self.by_address:
            raise DecodeError(f"`{inst.text}` leads to {address:#x}, where no instruction begins")
        return self.by_address[address]

    def is_branch(self, index: int) -> bool:
        """Whether the instruction has a label as its last operand."""
        return bool(_BRANCHES.match(self.insts[index].mnemonic))


# --- text


def parse_text(text: str, arch: str | None = None) -> Program:
    """A program from assembly text. `arch` (or the text's own `.amdgcn_target`) names the machine; gfx942 if none does."""
    found = re.search(r'amdgcn_target\s+"amdgcn-amd-amdhsa--(gfx\w+)', text)
    program = Program(arch or (found[1] if found else "gfx942"))
    reader = _TextReader(program)
    for number, line in enumerate(text.splitlines(), 1):
        reader.line(number, line)
    reader.finish()
    return program


class _TextReader:
    """Reads line by line: which section, which `.amdhsa_kernel` block, the metadata block."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.in_code = True
        self.block: dict[str, str] | None = None
        self.blocks: dict[str, dict[str, str]] = {}
        self.files: dict[str, str] = {}
        self.loc: Loc | None = None
        self.metadata: list[str] | None = None

    def line(self, number: int, line: str) -> None:
        """Take one line of the text."""
        if self.metadata is not None and ".end_amdgpu_metadata" not in line:
            self.metadata.append(line)
            return
        code, comment = _cut_comment(line)
        label = _LABEL.match(code)
        if label and self.block is None:
            self.program.labels[label[1].strip('"')] = len(self.program.insts)
            code = label[2]
        code = code.strip()
        if not code:
            return
        if code[0] == ".":
            self._directive(code)
        elif self.in_code:
            loc = source_of(comment) or self.loc
            self.program.insts.append(Inst(code, 4 * len(self.program.insts), 4, number, loc))

    def _directive(self, code: str) -> None:
        name, _, rest = code.partition(" ") if " " in code else code.partition("\t")
        if name == ".amdhsa_kernel":
            self.block = self.blocks.setdefault(rest.strip(), {})
        elif name == ".end_amdhsa_kernel":
            self.block = None
        elif name.startswith(".amdhsa_") and self.block is not None:
            found = _AMDHSA.match(code)
            if found:
                self.block[found[1]] = found[2].strip()
        elif name == ".amdgpu_metadata":
            self.metadata = []
        elif name in (".section", ".rodata", ".data", ".bss"):
            self.in_code = rest.startswith(".text")
        elif name == ".text":
            self.in_code = True
        elif name == ".file":
            found = re.match(r'(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"', rest)
            if found:
                self.files[found[1]] = f"{found[2]}/{found[3]}" if found[2] else found[3]
        elif name == ".loc":
            number, line, column = [*rest.split(), "0", "0"][:3]
            at = int(line) if line.isdigit() else 0
            self.loc = (
                Loc(self.files.get(number, number), at, int(column) if column.isdigit() else 1) if at else self.loc
            )

    def finish(self) -> None:
        """Make the kernels from the directives; a text without any has its first label as its kernel."""
        program = self.program
        for name, block in self.blocks.items():
            program.kernels[name] = _kernel_of_directives(name, program.labels.get(name, 0), block)
        if not self.blocks:
            name = next(iter(program.labels), "kernel")
            program.kernels[name] = _kernel_of_directives(name, program.labels.get(name, 0), {})
        for name, args in _metadata_args(self.metadata or []):
            if name in program.kernels:
                program.kernels[name].args = args
        program.by_address = {inst.address: i for i, inst in enumerate(program.insts)}


def _cut_comment(line: str) -> tuple[str, str]:
    cut = min((at for at in (line.find(";"), line.find("//")) if at >= 0), default=-1)
    return (line, "") if cut < 0 else (line[:cut], line[cut:])


# User registers in the order in which the hardware fills them (the bits of the descriptor's properties): name, count.
USER_REGISTERS = (
    ("private_segment_buffer", 4), ("dispatch_ptr", 2), ("queue_ptr", 2), ("kernarg_segment_ptr", 2), ("dispatch_id", 2),
    ("flat_scratch_init", 2), ("private_segment_size", 1),
)  # fmt: skip


def _kernel_of_directives(name: str, entry: int, block: dict[str, str]) -> KernelInfo:
    info = KernelInfo(name, entry)

    def value(key: str, default: int) -> int:
        text = block.get(key)
        try:
            return default if text is None else int(text, 0)
        except ValueError:
            raise DecodeError(f".amdhsa_{key} {text}: an expression, not a number") from None

    info.lds = value("group_segment_fixed_size", 0)
    info.scratch = value("private_segment_fixed_size", 0)
    info.kernarg_size = value("kernarg_size", 0)
    info.user_layout = [
        (k, n) for k, n in USER_REGISTERS if value(f"user_sgpr_{k}", int(k == "kernarg_segment_ptr" and not block))
    ]
    used = sum(n for _, n in info.user_layout)
    info.preload = value("user_sgpr_kernarg_preload_length", 0)
    info.user_sgprs = value("user_sgpr_count", used + info.preload)
    info.workgroup_ids = (
        bool(value("system_sgpr_workgroup_id_x", 1)),
        bool(value("system_sgpr_workgroup_id_y", int(not block))),
        bool(value("system_sgpr_workgroup_id_z", int(not block))),
    )
    info.workgroup_info = bool(value("system_sgpr_workgroup_info", 0))
    info.workitem_dims = value("system_vgpr_workitem_id", 0 if block else 2) + 1
    info.float_mode = (
        value("float_round_mode_32", 0) | value("float_round_mode_16_64", 0) << 2
        | value("float_denorm_mode_32", 0 if block else 3) << 4 | value("float_denorm_mode_16_64", 3) << 6
    )  # fmt: skip
    info.dx10_clamp, info.ieee = bool(value("dx10_clamp", 1)), bool(value("ieee_mode", 1))
    return info


def _metadata_args(lines: Iterable[str]) -> list[tuple[str, list[KernelArg]]]:
    """(kernel name, arguments) of the metadata's YAML, as LLVM prints it."""
    out: list[tuple[str, list[KernelArg]]] = []
    items: list[dict[str, str]] = []
    name, in_args, indent = "", False, 0
    for line in [*lines, "amdhsa.end:"]:
        body = line.strip()
        depth = len(line) - len(line.lstrip())
        if (body.startswith("- ") and not in_args) or body.startswith("amdhsa."):
            if name:
                out.append((name, [_arg(item) for item in items if "offset" in item]))
            name, items = "", []
        starts = body.startswith("- ")
        key, _, value = body.removeprefix("- ").partition(":")
        key, value = key.strip().lstrip("."), value.strip().strip("'\"")
        if key == "args" and not value:
            in_args, indent = True, depth + (2 if starts else 0)
            continue
        if in_args and depth <= indent and body:
            in_args = starts and depth == indent
        if in_args:
            items = [*items, {}] if starts else items
            items[-1][key] = value
        elif key == "name":
            name = value
    return out


def _arg(item: dict[str, str]) -> KernelArg:
    return KernelArg(int(item["offset"]), int(item.get("size", "8")), item.get("value_kind", "by_value"))
