"""Code objects (.hsaco): ELF files that HIP loads, written without a linker and read whoever made them.

Owns: `write` (code object version 5), `read` (versions 4 to 6), the metadata note. Assumes position-independent machine
code that refers to nothing outside itself. Must not know machine IR or the calling convention. Sources: the LLVM project's
"User Guide for AMDGPU Backend", sections "Code Object" and "Code Object Metadata"; the ELF specification.

What is loaded, each part on a page of its own: tables and descriptors (read only), code, the dynamic section. ROCm's
loader finds kernels by the suffix ``.kd`` in the symbol table.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, cast

from mimw.codegen.amdgcn.binary import elf, message_pack
from mimw.codegen.amdgcn.binary.elf import Elf, Segment, Symbol
from mimw.codegen.amdgcn.binary.kernel_descriptor import (
    DESCRIPTOR_ALIGN,
    DESCRIPTOR_BYTES,
    EXTRA_SGPRS,
    KernelDescriptor,
)

CODE_ALIGN = 256
"""Bytes to which the entry of a kernel is aligned."""

# e_flags: the machine in the low byte; xnack and sramecc as on any device (0x100, 0x400).
_MACHINES = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F}
_ANY_FEATURES = 0x500
_OS_ABI = 64  # ELFOSABI_AMDGPU_HSA
_ABI_VERSIONS = {2: 4, 3: 5, 4: 6}  # e_ident[EI_ABIVERSION] -> version of the code object
_METADATA_NOTE = 32  # NT_AMDGPU_METADATA
# What the instruction prefetcher may read behind the last instruction: s_nop 0.
_TAIL = struct.pack("<I", 0xBF800000) * 64
_PAGE = 0x1000
_PROTECTED = 3


class KernelArg:
    """One argument: `offset` and `size` in bytes of the argument buffer; `kind` as metadata says: ``global_buffer``, ``by_value``, ``hidden_…``."""

    __slots__ = ("kind", "name", "offset", "size")

    def __init__(self, name: str, offset: int, size: int, kind: str) -> None:
        self.name = name
        self.offset = offset
        self.size = size
        self.kind = kind

    def __repr__(self) -> str:
        return f"KernelArg({self.name!r}, {self.offset}, {self.size}, {self.kind!r})"


class KernelCode:
    """A kernel to be written: where its instructions stand in the code (`offset`, a multiple of 256, and `size`, in bytes)."""

    __slots__ = ("args", "descriptor", "max_threads", "name", "offset", "size")

    def __init__(
        self,
        name: str,
        offset: int,
        size: int,
        descriptor: KernelDescriptor,
        args: Sequence[KernelArg] = (),
        max_threads: int = 256,
    ) -> None:
        self.name = name
        self.offset = offset
        self.size = size
        self.descriptor = descriptor
        self.args = list(args)
        self.max_threads = max_threads


class Kernel:
    """A kernel that was read: `entry` is the address of its first instruction, `size` its code's bytes, `metadata` its own map."""

    __slots__ = ("args", "descriptor", "entry", "max_threads", "metadata", "name", "size")

    def __init__(
        self, name: str, entry: int, size: int, descriptor: KernelDescriptor, metadata: dict[str, Any]
    ) -> None:
        self.name = name
        self.entry = entry
        self.size = size
        self.descriptor = descriptor
        self.metadata = metadata
        self.max_threads: int = metadata.get(".max_flat_workgroup_size", 1024)
        self.args = [
            KernelArg(a.get(".name", ""), a[".offset"], a[".size"], a.get(".value_kind", "by_value"))
            for a in cast("list[dict[str, Any]]", metadata.get(".args", []))
        ]


class CodeObject:
    """A code object that was read.

    `target` (``"gfx942"``), `version` (5), `kernels` by name; `text` is the code, loaded at `text_address`; `symbols` by
    name, their values are addresses; `segments` are all that is loaded, with constants that code may read.
    """

    __slots__ = ("kernels", "segments", "symbols", "target", "text", "text_address", "version")

    def __init__(self, target: str, version: int, text: bytes, text_address: int, segments: list[Segment]) -> None:
        self.target = target
        self.version = version
        self.text = text
        self.text_address = text_address
        self.segments = segments
        self.kernels: dict[str, Kernel] = {}
        self.symbols: dict[str, Symbol] = {}

    def bytes_at(self, address: int, size: int) -> bytes:
        """Loaded bytes; `ValueError` where nothing, or less, is loaded."""
        for segment in self.segments:
            start = address - segment.address
            if start >= 0 and start + size <= segment.size:
                return segment.data[start : start + size].ljust(size, b"\0")
        raise ValueError(f"the code object loads no {size} bytes at {address:#x}")


# --- reading


def read(data: bytes) -> CodeObject:
    """Parse a code object. `ValueError` says what is wrong with bytes that are none, or that need a linker first."""
    file = Elf(data)
    if file.machine != elf.AMDGPU_MACHINE or file.abi != _OS_ABI:
        raise ValueError(f"the ELF file is for machine {file.machine}, ABI {file.abi}: no code object of AMD's")
    text = file.section(".text")
    if text is None or not file.segments:
        raise ValueError("the ELF file has no code to load: an object file must be linked first")
    unresolved = [s.name for s, _ in file.relocations() if s.address]
    if unresolved:
        raise ValueError(f"the code object has relocations ({', '.join(unresolved)}): it needs a loader that links")
    target = _target_of(file.flags)
    found = CodeObject(target, _ABI_VERSIONS.get(file.abi_version, 0), text.data, text.address, file.segments)
    found.symbols = {s.name: s for s in file.symbols() if s.defined}
    described = {k[".symbol"]: k for k in _metadata(file)}
    for name, symbol in found.symbols.items():
        if name.endswith(".kd") and symbol.kind == elf.STT_OBJECT:
            kernel = _kernel(found, symbol, described.get(name, {}))
            found.kernels[kernel.name] = kernel
    return found


def _target_of(flags: int) -> str:
    for name, machine in _MACHINES.items():
        if machine == flags & 0xFF:
            return name
    raise ValueError(f"the code object is for the unknown machine {flags & 0xFF:#x}; known: {', '.join(_MACHINES)}")


def _metadata(file: Elf) -> list[dict[str, Any]]:
    """The maps of all kernels; none where there is no note. Linked objects may carry an empty note beside the full one."""
    kernels: list[dict[str, Any]] = []
    for owner, kind, body in file.notes():
        if owner == "AMDGPU" and kind == _METADATA_NOTE:
            kernels += message_pack.unpack(body).get("amdhsa.kernels", [])
    return kernels


def _kernel(code: CodeObject, symbol: Symbol, metadata: dict[str, Any]) -> Kernel:
    name = symbol.name.removesuffix(".kd")
    descriptor, offset = KernelDescriptor.unpack(code.bytes_at(symbol.value, DESCRIPTOR_BYTES))
    entry = symbol.value + offset
    function = code.symbols.get(name)
    size = function.size if function is not None and function.value == entry else 0
    return Kernel(name, entry, size or code.text_address + len(code.text) - entry, descriptor, metadata)


# --- writing


class _Section:
    """A section to be written; `shift` is its address less its place in the file, None for one that is not loaded."""

    __slots__ = ("align", "data", "entry_size", "flags", "info", "kind", "link", "name", "offset", "shift")

    def __init__(
        self,
        name: str,
        kind: int,
        data: bytes,
        align: int,
        shift: int | None,
        flags: int = 0,
        link: str = "",
        info: int = 0,
        entry_size: int = 0,
    ) -> None:
        self.name = name
        self.kind = kind
        self.data = data
        self.align = align
        self.shift = shift
        self.flags = flags
        self.link = link
        self.info = info
        self.entry_size = entry_size
        self.offset = 0

    @property
    def address(self) -> int:
        return self.offset + self.shift if self.shift is not None else 0


class _Strings:
    """A string table under construction: `places` has the offset of each string."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.places: dict[str, int] = {}
        self.data = b"\0"
        for string in strings:
            self.places[string] = len(self.data)
            self.data += string.encode() + b"\0"


def write(target_name: str, code: bytes, kernels: Sequence[KernelCode]) -> bytes:
    """The code object of machine code and the kernels in it. `ValueError` when an entry is misaligned or outside of it."""
    for kernel in kernels:
        if kernel.offset % CODE_ALIGN or not 0 <= kernel.offset < kernel.offset + kernel.size <= len(code):
            raise ValueError(
                f"kernel {kernel.name!r}: {kernel.size} bytes at {kernel.offset} of {len(code)}; entries are multiples of {CODE_ALIGN}"
            )
    names = [name for kernel in kernels for name in (kernel.name, f"{kernel.name}.kd")]
    strings = _Strings(names)
    symbols = bytes(elf.SYMBOL_BYTES * (1 + len(names)))  # filled in when addresses are known
    sections = [
        _Section(".note", elf.SHT_NOTE, _note(target_name, kernels), 4, 0, flags=2),
        _Section(".dynsym", elf.SHT_DYNSYM, symbols, 8, 0, 2, ".dynstr", 1, elf.SYMBOL_BYTES),
        _Section(".hash", elf.SHT_HASH, _hash_table(names), 4, 0, 2, ".dynsym", 0, 4),
        _Section(".dynstr", elf.SHT_STRTAB, strings.data, 1, 0, flags=2),
        _Section(".rodata", elf.SHT_PROGBITS, bytes(DESCRIPTOR_BYTES * len(kernels)), DESCRIPTOR_ALIGN, 0, flags=2),
        _Section(".text", elf.SHT_PROGBITS, code + _TAIL, CODE_ALIGN, _PAGE, flags=6),
        _Section(".dynamic", elf.SHT_DYNAMIC, bytes(6 * 16), 16, 2 * _PAGE, 3, ".dynstr", 0, 16),
        _Section(".symtab", elf.SHT_SYMTAB, symbols, 8, None, 0, ".strtab", 1, elf.SYMBOL_BYTES),
        _Section(".strtab", elf.SHT_STRTAB, strings.data, 1, None),
    ]
    titles = _Strings([*(s.name for s in sections), ".shstrtab"])
    sections.append(_Section(".shstrtab", elf.SHT_STRTAB, titles.data, 1, None))
    by_name = {s.name: s for s in sections}
    end = elf.HEADER_BYTES + 6 * elf.PROGRAM_BYTES
    for section in sections:
        section.offset = -(-end // section.align) * section.align
        end = section.offset + len(section.data)
    _fill_in(by_name, [s.name for s in sections], kernels, strings)
    return _file(target_name, sections, by_name, titles, -(-end // 8) * 8)


def _fill_in(by_name: dict[str, _Section], order: list[str], kernels: Sequence[KernelCode], strings: _Strings) -> None:
    """Write what depends on addresses: symbols, descriptors, the dynamic section."""
    code, rodata = by_name[".text"], by_name[".rodata"]
    symbols, descriptors = [bytes(elf.SYMBOL_BYTES)], b""
    for i, kernel in enumerate(kernels):
        entry, place = code.address + kernel.offset, rodata.address + DESCRIPTOR_BYTES * i
        for name, kind, section, value, size in (
            (kernel.name, elf.STT_FUNC, ".text", entry, kernel.size),
            (f"{kernel.name}.kd", elf.STT_OBJECT, ".rodata", place, DESCRIPTOR_BYTES),
        ):
            symbols.append(
                elf.pack_symbol(strings.places[name], kind, _PROTECTED, order.index(section) + 1, value, size)
            )
        descriptors += kernel.descriptor.pack(entry - place)
    by_name[".dynsym"].data = by_name[".symtab"].data = b"".join(symbols)
    rodata.data = descriptors
    tags = (
        (elf.DT_SYMTAB, by_name[".dynsym"].address),
        (elf.DT_SYMENT, elf.SYMBOL_BYTES),
        (elf.DT_STRTAB, by_name[".dynstr"].address),
        (elf.DT_STRSZ, len(strings.data)),
        (elf.DT_HASH, by_name[".hash"].address),
        (0, 0),
    )
    by_name[".dynamic"].data = b"".join(struct.pack("<QQ", *tag) for tag in tags)


def _file(
    target_name: str, sections: list[_Section], by_name: dict[str, _Section], titles: _Strings, table: int
) -> bytes:
    """All parts in one: headers, sections, the section table at byte `table`."""
    order = [s.name for s in sections]
    rodata, code, dynamic, note = (by_name[n] for n in (".rodata", ".text", ".dynamic", ".note"))
    programs = [
        elf.pack_program(elf.PT_LOAD, 4, 0, 0, rodata.offset + len(rodata.data), _PAGE),
        elf.pack_program(elf.PT_LOAD, 5, code.offset, code.address, len(code.data), _PAGE),
        elf.pack_program(elf.PT_LOAD, 6, dynamic.offset, dynamic.address, len(dynamic.data), _PAGE),
        elf.pack_program(elf.PT_DYNAMIC, 6, dynamic.offset, dynamic.address, len(dynamic.data), 8),
        elf.pack_program(elf.PT_NOTE, 4, note.offset, note.address, len(note.data), 4),
        elf.pack_program(elf.PT_GNU_STACK, 6, 0, 0, 0, 0),
    ]
    header = elf.pack_header(
        (_OS_ABI, 3),
        elf.AMDGPU_MACHINE,
        _MACHINES[target_name] | _ANY_FEATURES,
        table,
        len(programs),
        len(sections) + 1,
        order.index(".shstrtab") + 1,
    )
    out = bytearray(table)
    start = header + b"".join(programs)
    out[: len(start)] = start
    headers = [bytes(elf.SECTION_BYTES)]
    for section in sections:
        out[section.offset : section.offset + len(section.data)] = section.data
        link = order.index(section.link) + 1 if section.link else 0
        headers.append(
            elf.pack_section(
                titles.places[section.name],
                section.kind,
                section.flags,
                section.address,
                section.offset,
                len(section.data),
                link,
                section.info,
                section.align,
                section.entry_size,
            )
        )
    return bytes(out) + b"".join(headers)


def _note(target_name: str, kernels: Sequence[KernelCode]) -> bytes:
    body = message_pack.pack(
        {
            "amdhsa.version": [1, 2],
            "amdhsa.target": f"amdgcn-amd-amdhsa--{target_name}",
            "amdhsa.kernels": [_kernel_map(kernel) for kernel in kernels],
        }
    )
    return struct.pack("<III8s", 7, len(body), _METADATA_NOTE, b"AMDGPU") + body + bytes(-len(body) % 4)


def _kernel_map(kernel: KernelCode) -> dict[str, Any]:
    """The metadata of one kernel."""
    descriptor = kernel.descriptor
    args: list[dict[str, Any]] = []
    for arg in kernel.args:
        entry: dict[str, Any] = {".name": arg.name, ".offset": arg.offset, ".size": arg.size, ".value_kind": arg.kind}
        if arg.kind == "global_buffer":
            entry[".address_space"] = "global"
        args.append(entry)
    return {
        ".name": kernel.name,
        ".symbol": f"{kernel.name}.kd",
        ".args": args,
        ".kernarg_segment_size": descriptor.kernarg_bytes,
        ".kernarg_segment_align": 8,
        ".group_segment_fixed_size": descriptor.lds_bytes,
        ".private_segment_fixed_size": descriptor.scratch_bytes,
        ".wavefront_size": 64,
        ".sgpr_count": descriptor.sgprs + EXTRA_SGPRS,
        ".vgpr_count": descriptor.total_vgprs,
        ".agpr_count": descriptor.agprs,
        ".max_flat_workgroup_size": kernel.max_threads,
    }


def _hash_table(names: Sequence[str]) -> bytes:
    """The SysV hash table of symbols 1, 2, ...: buckets, then a chain entry a symbol."""
    count = max(1, len(names) // 2)
    buckets, chains = [0] * count, [0] * (len(names) + 1)
    for i, name in enumerate(names, 1):
        bucket = elf.symbol_hash(name) % count
        chains[i], buckets[bucket] = buckets[bucket], i
    return struct.pack(f"<{2 + count + len(chains)}I", count, len(chains), *buckets, *chains)
