"""Reading of 64-bit little-endian ELF files: sections, segments, symbols.

Owns: `Elf`. Assumes nothing of who made the file: object files of LLVM, code objects of any compiler. Must not know
kernels. Numbers are those of the ELF specification (gABI).
"""

from __future__ import annotations

import struct

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOTE = struct.Struct("<III")

AMDGPU_MACHINE = 224  # EM_AMDGPU
PT_LOAD, PT_NOTE = 1, 4
SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_SYMTAB, SHT_DYNSYM = 4, 7, 8, 9, 2, 11
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
            kind, flags, offset, address, _, in_file, size, _ = _PROGRAM.unpack_from(data, phoff + i * phsize)
            if kind == PT_LOAD:
                self.segments.append(Segment(address, _part(data, offset, in_file), size, bool(flags & 1)))
            elif kind == PT_NOTE:
                self._notes.append(_part(data, offset, in_file))
        headers: list[tuple[int, ...]] = [_SECTION.unpack_from(data, shoff + i * shsize) for i in range(shnum)]
        texts = _part(data, headers[names][4], headers[names][5]) if headers else b""
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
