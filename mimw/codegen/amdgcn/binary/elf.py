"""64-bit little-endian ELF files: read into sections, segments and symbols; the records that a writer needs.

Owns: `Elf`, `pack_header` and the like. Assumes nothing of who made a file: object files of LLVM, code objects of any
compiler. Must not know kernels. Numbers are those of the ELF specification (gABI).
"""

from __future__ import annotations

import struct

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOTE = struct.Struct("<III")

HEADER_BYTES, PROGRAM_BYTES, SECTION_BYTES, SYMBOL_BYTES = (s.size for s in (_HEADER, _PROGRAM, _SECTION, _SYMBOL))

AMDGPU_MACHINE = 224  # EM_AMDGPU
PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_GNU_STACK = 1, 2, 4, 0x6474E551
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH, SHT_DYNAMIC = 1, 2, 3, 4, 5, 6
SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_DYNSYM = 7, 8, 9, 11
DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT = 4, 5, 6, 10, 11
STT_NOTYPE, STT_OBJECT, STT_FUNC = 0, 1, 2
SHN_UNDEF, SHN_LORESERVE = 0, 0xFF00


class Section:
    """A section: `address` where it is loaded (0: nowhere), its bytes, `info` and `link` as the file says them."""

    __slots__ = ("address", "data", "index", "info", "link", "name", "type")

    def __init__(self, index: int, name: str, kind: int, address: int, data: bytes, link: int, info: int) -> None:
        self.index = index
        self.name = name
        self.type = kind
        self.address = address
        self.data = data
        self.link = link
        self.info = info


class Segment:
    """What is loaded at `address`: the file's bytes, zeros up to `size`; `executable` when code."""

    __slots__ = ("address", "data", "executable", "size")

    def __init__(self, address: int, data: bytes, size: int, executable: bool) -> None:
        self.address = address
        self.data = data
        self.size = size
        self.executable = executable


class Symbol:
    """A symbol: `value` is an address (in object files: an offset in its section), `section` an index, 0 undefined."""

    __slots__ = ("kind", "name", "section", "size", "value")

    def __init__(self, name: str, kind: int, section: int, value: int, size: int) -> None:
        self.name = name
        self.kind = kind
        self.section = section
        self.value = value
        self.size = size

    @property
    def defined(self) -> bool:
        """Whether it names a place in this file."""
        return SHN_UNDEF < self.section < SHN_LORESERVE

    def __repr__(self) -> str:
        return f"Symbol({self.name!r}, {self.value:#x}, size={self.size})"


class Elf:
    """A parsed file. `ValueError` says what is wrong with one that is none, or is cut off."""

    def __init__(self, data: bytes) -> None:
        try:
            self._read(data)
        except (struct.error, IndexError) as error:
            raise ValueError(f"the ELF file is cut off or damaged: {error}") from None

    def _read(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        (ident, self.type, self.machine, _, _, phoff, shoff, self.flags, _, phsize, phnum, shsize, shnum, names) = (
            _HEADER.unpack_from(data)
        )
        self.abi, self.abi_version = ident[7], ident[8]
        self.segments: list[Segment] = []
        self._notes: list[bytes] = []
        for i in range(phnum):
            header: tuple[int, ...] = _PROGRAM.unpack_from(data, phoff + i * phsize)
            kind, flags, offset, address, _, in_file, size, _ = header
            if kind == PT_LOAD:
                self.segments.append(Segment(address, _part(data, offset, in_file), size, bool(flags & 1)))
            elif kind == PT_NOTE:
                self._notes.append(_part(data, offset, in_file))
        headers: list[tuple[int, ...]] = [_SECTION.unpack_from(data, shoff + i * shsize) for i in range(shnum)]
        texts = _part(data, *headers[int(names)][4:6]) if headers else b""
        self.sections: list[Section] = []
        for i, (name, kind, _, address, offset, size, link, info, _, _) in enumerate(headers):
            body = b"" if kind in (0, SHT_NOBITS) else _part(data, offset, size)
            self.sections.append(Section(i, _string(texts, name), kind, address, body, link, info))

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((s for s in self.sections if s.name == name), None)

    def symbols(self) -> list[Symbol]:
        """The named symbols: of `.symtab`, or of `.dynsym` where that has been stripped."""
        for kind in (SHT_SYMTAB, SHT_DYNSYM):
            for section in self.sections:
                if section.type == kind:
                    return self._symbols(section)
        return []

    def _symbols(self, section: Section) -> list[Symbol]:
        texts = self.sections[section.link].data
        found: list[Symbol] = []
        for name, info, _, where, value, size in _SYMBOL.iter_unpack(section.data):
            if name:
                found.append(Symbol(_string(texts, name), info & 15, where, value, size))
        return found

    def notes(self) -> list[tuple[str, int, bytes]]:
        """(owner, type, contents) of every note."""
        parts = self._notes or [s.data for s in self.sections if s.type == SHT_NOTE]
        found: list[tuple[str, int, bytes]] = []
        for part in parts:
            position = 0
            while position + _NOTE.size <= len(part):
                name_size, size, kind = _NOTE.unpack_from(part, position)
                start = position + _NOTE.size
                body = start + (name_size + 3 & -4)
                owner = _part(part, start, name_size).rstrip(b"\0").decode()
                found.append((owner, kind, _part(part, body, size)))
                position = body + (size + 3 & -4)
        return found

    def relocations(self) -> list[tuple[Section, Section]]:
        """(relocations, the section that they patch)."""
        return [(s, self.sections[s.info]) for s in self.sections if s.type in (SHT_RELA, SHT_REL) and s.data]


def _part(data: bytes, offset: int, size: int) -> bytes:
    part = data[offset : offset + size]
    if len(part) != size:
        raise ValueError(f"the ELF file is cut off: it has no {size} bytes at {offset}")
    return part


def _string(texts: bytes, offset: int) -> str:
    return texts[offset : texts.index(0, offset)].decode()


# --- records


def pack_header(
    abi: tuple[int, int], machine: int, flags: int, section_table: int, programs: int, sections: int, titles: int
) -> bytes:
    """The header of a shared object: `abi` is OS and version, program headers follow it, `titles` is `.shstrtab`'s index."""
    ident = b"\x7fELF\x02\x01\x01" + bytes(abi)
    sizes = (HEADER_BYTES, PROGRAM_BYTES, programs, SECTION_BYTES, sections, titles)
    return _HEADER.pack(ident, 3, machine, 1, 0, HEADER_BYTES, section_table, flags, *sizes)


def pack_program(kind: int, flags: int, offset: int, address: int, size: int, align: int) -> bytes:
    """One program header; flags: 4 read, 2 write, 1 execute."""
    return _PROGRAM.pack(kind, flags, offset, address, address, size, size, align)


def pack_section(name: int, kind: int, flags: int, address: int, offset: int, *rest: int) -> bytes:
    """One section header; `rest` is size, link, info, alignment, size of an entry."""
    return _SECTION.pack(name, kind, flags, address, offset, *rest)


def pack_symbol(name: int, kind: int, visibility: int, section: int, value: int, size: int) -> bytes:
    """One global symbol."""
    return _SYMBOL.pack(name, 1 << 4 | kind, visibility, section, value, size)


def symbol_hash(name: str) -> int:
    """The hash of a name in a `.hash` section."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value
