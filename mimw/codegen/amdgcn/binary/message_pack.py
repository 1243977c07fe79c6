"""MessagePack, as far as the metadata of code objects needs it.

Owns: `pack` (maps, lists, texts, booleans, integers), `unpack` (every type but extensions). The format is the one of
msgpack.org's specification. Must not know what is said in it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, cast

# Code -> struct format of a number.
_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
# Code -> (what follows, struct format of its length).
_SIZED = {
    0xC4: ("bytes", ">B"),
    0xC5: ("bytes", ">H"),
    0xC6: ("bytes", ">I"),
    0xD9: ("text", ">B"),
    0xDA: ("text", ">H"),
    0xDB: ("text", ">I"),
    0xDC: ("list", ">H"),
    0xDD: ("list", ">I"),
    0xDE: ("map", ">H"),
    0xDF: ("map", ">I"),
}


def pack(value: Any) -> bytes:
    """A value as bytes, each part in its shortest form; `TypeError` for other types."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return _pack_integer(value)
    if isinstance(value, str):
        data = value.encode()
        return _head(len(data), 0xA0, 32, (0xD9, 0xDA, 0xDB)) + data
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        return _head(len(items), 0x80, 16, (None, 0xDE, 0xDF)) + b"".join(pack(k) + pack(v) for k, v in items.items())
    if isinstance(value, (list, tuple)):
        parts = cast("Sequence[Any]", value)
        return _head(len(parts), 0x90, 16, (None, 0xDC, 0xDD)) + b"".join(pack(v) for v in parts)
    raise TypeError(f"no MessagePack form for a {type(value).__name__}")


def _head(size: int, short: int, limit: int, codes: tuple[int | None, int, int]) -> bytes:
    if size < limit:
        return bytes([short | size])
    one, two, four = codes
    if one is not None and size < 2**8:
        return struct.pack(">BB", one, size)
    return struct.pack(">BH", two, size) if size < 2**16 else struct.pack(">BI", four, size)


def _pack_integer(value: int) -> bytes:
    if -32 <= value < 128:
        return struct.pack(">b", value)
    for code in (0xCC, 0xCD, 0xCE, 0xCF) if value >= 0 else (0xD0, 0xD1, 0xD2, 0xD3):
        try:
            return bytes([code]) + struct.pack(_NUMBERS[code], value)
        except struct.error:
            continue
    raise TypeError(f"no MessagePack form for {value}: it needs more than 64 bits")


def unpack(data: bytes) -> Any:
    """The value at the start of `data`; what follows it is ignored. `ValueError` when `data` ends too early."""
    try:
        return _unpack(data, 0)[0]
    except (struct.error, IndexError):
        raise ValueError("the MessagePack data is cut off") from None


def _unpack(data: bytes, at: int) -> tuple[Any, int]:
    """(value, position after it)."""
    code = data[at]
    at += 1
    if code < 0x80:
        return code, at
    if code >= 0xE0:
        return code - 256, at
    if code < 0xC0:
        what, size = ("map", code & 15) if code < 0x90 else ("list", code & 15) if code < 0xA0 else ("text", code & 31)
        return _unpack_sized(data, at, what, size)
    if code in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[code], at
    if code in _NUMBERS:
        form = _NUMBERS[code]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if code in _SIZED:
        what, form = _SIZED[code]
        return _unpack_sized(data, at + struct.calcsize(form), what, struct.unpack_from(form, data, at)[0])
    raise ValueError(f"the MessagePack type {code:#x} is not known")


def _unpack_sized(data: bytes, at: int, what: str, size: int) -> tuple[Any, int]:
    if what in ("text", "bytes"):
        part = data[at : at + size]
        if len(part) != size:
            raise IndexError
        return part.decode() if what == "text" else part, at + size
    parts: list[Any] = []
    for _ in range(size if what == "list" else 2 * size):
        part, at = _unpack(data, at)
        parts.append(part)
    return (parts if what == "list" else dict(zip(parts[::2], parts[1::2], strict=True))), at
