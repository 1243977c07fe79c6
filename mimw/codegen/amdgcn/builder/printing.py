"""Printing from AMDGCN code: records in memory that the host reads, since there is no printf behind AMD's driver.

Owns the three hidden arguments of a kernel that prints or asserts, and the code that writes a record:

* ``print_records``: memory of the host that the device writes through to, `WORDS` words of 32 bits, zero at first;
* ``print_state``: 16 bytes of the device's memory: u32 words claimed, u32 records that found no room, u32 assertions that failed, u32 0;
* ``print_texts``: i32 number of the kernel's first text in the host's table of texts.

A record is one word with the number of its text plus 1, written last, and the values, low words first: what the text's C conversions say they
are. `mimw.runtime.device_print` reads that. Every lane claims and writes its own records. Knows no op.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mimw.codegen.amdgcn.builder.memory import global_address
from mimw.codegen.lane import CTA, LANE, Lane, Tile, bits_of
from mimw.codegen.machine import Imm, Operand, Symbol
from mimw.diagnostics import InternalError
from mimw.ir.types import I32, I64, U32, U64

if TYPE_CHECKING:
    from mimw.codegen.amdgcn.builder.builder import AmdgcnBuilder

WORDS = 1 << 18
RECORDS, STATE, TEXTS = "print_records", "print_state", "print_texts"
_CLAIMED, _LOST, _FAILED = 0, 4, 8
_WIDEST = 4


def print_text(b: AmdgcnBuilder, text: str, values: Tile, guard: Lane | None) -> None:
    """Each lane whose guard is true leaves a record, or is counted where there is no room."""
    if guard is not None and guard.reg is None and not guard.off:
        return
    number = b.texts.setdefault(text, len(b.texts))
    words = [word for value in values for word in _words(b, value)]
    size = 1 + len(words)
    state = hidden_pointer(b, STATE)
    claimed = b.load("global", U32, state, 1, guard, None, "volatile")[0]  # so that the sum stays near the limit
    inside = b.both(guard, b.compare("lt", claimed, b.const(U32, WORDS)))
    at = _add(b, b.plus(state, _CLAIMED), size, inside, returns=True)
    fits = b.both(inside, b.compare("lt", at, b.const(U32, WORDS - size + 1)))
    place = b.add(hidden_pointer(b, RECORDS), b.widen_scaled(at, I64, 4))
    done = 0
    while done < len(words):
        count = min(_WIDEST, len(words) - done)
        b.store("global", b.plus(place, 4 + 4 * done), words[done : done + count], fits, "volatile")
        done += count
    publish(b)
    first = Lane(I32, b.load_argument("s32", b.hidden[TEXTS]), uniform=CTA)
    header = b.bitcast(Lane(I32, b.register(b.plus(first, number + 1)), uniform=CTA), U32)
    b.store("global", place, [header], fits, "volatile")
    assert fits is not None
    _add(b, b.plus(state, _LOST), 1, b.both(guard, b.invert(fits)), returns=False)


def count_failure(b: AmdgcnBuilder, guard: Lane | None) -> None:
    """Lanes whose guard is true have failed an assertion."""
    publish(b)
    _add(b, b.plus(hidden_pointer(b, STATE), _FAILED), 1, guard, returns=False)


def publish(b: AmdgcnBuilder) -> None:
    """What this wave has written is where the host sees it (LLVM's memory model for gfx942, a release of system scope)."""
    b.emit("buffer_wbl2", [Symbol("sc0"), Symbol("sc1")])
    b.emit("p_wait_vm", [Imm(0)])


def hidden_pointer(b: AmdgcnBuilder, name: str) -> Lane:
    """One of the kernel's hidden pointers, as a number."""
    if name not in b.hidden:
        raise InternalError(f"the kernel has no argument {name}", b.loc)
    return Lane(I64, b.load_argument("s64", b.hidden[name]), uniform=CTA)


def _words(b: AmdgcnBuilder, value: Lane) -> list[Lane]:
    """A value as words, low to high."""
    if bits_of(value.dtype) == 64:
        return list(b.words(b.bitcast(value, U64)))
    return [b.bitcast(value, U32)]


def _add(b: AmdgcnBuilder, pointer: Lane, amount: int, guard: Lane | None, *, returns: bool) -> Lane:
    """An atomic addition to a word of the device's memory; the word before it in the lanes that add, else 0."""
    place, base, offset = global_address(b, pointer)
    data = b.vector(b.const(U32, amount))
    operands: list[Operand] = [place, data, base, *offset]
    if not returns:
        b.emit("global_atomic_add", operands, 0, guard)
        return b.const(U32, 0)
    old = b.reg("v32")
    tied = [b.vector(b.const(U32, 0))] if guard is not None else None
    b.emit("global_atomic_add_rtn", [old, *operands], 1, guard, tied)
    return Lane(U32, old, uniform=LANE)
