"""Data-parallel primitives (DPP): which lane each control reads, and which controls bring every lane the value that it wants.

Pure functions on lane numbers: makes no instruction. Controls as in the CDNA3 ISA, section 6.5; lanes without a source read 0 (`bound_ctrl`).
"""

from __future__ import annotations

from functools import cache

LANES = 64

_NAMED: dict[str, int] = {
    "quad_perm:[1,0,3,2]": 1, "quad_perm:[2,3,0,1]": 2, "quad_perm:[3,2,1,0]": 3, "row_half_mirror": 7, "row_ror:8": 8, "row_mirror": 15,
}  # fmt: skip
_BY_XOR = {mask: control for control, mask in _NAMED.items()}


def source_lane(control: str, lane: int) -> int | None:
    """The lane that `lane` reads under a control; None where there is none."""
    if control in _NAMED:
        return lane ^ _NAMED[control]
    name, _, value = control.partition(":")
    row, place = lane & ~15, lane & 15
    if name == "quad_perm":
        return lane & ~3 | int(value[1 + 2 * (lane & 3)])
    number = int(value)
    if name == "row_newbcast":
        return row | number
    if name == "row_shr":
        return lane - number if place >= number else None
    if name == "row_shl":
        return lane + number if place + number < 16 else None
    if name == "row_bcast":
        if number == 15:
            return row - 1 if row else None
        return 31 if lane >= 32 else None
    raise ValueError(f"unknown control {control}")


@cache
def _candidates() -> tuple[tuple[str, ...], ...]:
    """Single controls, then pairs that reach from one quad to the next one."""
    quads = [f"quad_perm:[{k},{k},{k},{k}]" for k in range(4)]
    single = [
        "quad_perm:[0,0,2,2]", "quad_perm:[1,1,3,3]", *quads, *(f"row_shr:{1 << i}" for i in range(4)),
        *(f"row_shl:{1 << i}" for i in range(4)), *(f"row_newbcast:{k}" for k in range(16)), "row_bcast:15", "row_bcast:31",
    ]  # fmt: skip
    return (*((control,) for control in single), *((quad, "row_half_mirror") for quad in quads))


def source_after(controls: tuple[str, ...], lane: int) -> int | None:
    """The lane whose value reaches `lane` through several controls, done one after another."""
    at: int | None = lane
    for control in reversed(controls):
        at = None if at is None else source_lane(control, at)
    return at


@cache
def step(clear: int, set_bits: int, guard: int, wanted: int) -> tuple[str, ...] | None:
    """Controls that bring the value of lane ``own & ~clear | set_bits`` to the lanes with ``own & guard == wanted``, or None."""
    lanes = [lane for lane in range(LANES) if lane & guard == wanted]
    for controls in _candidates():
        if all(source_after(controls, lane) == (lane & ~clear | set_bits) for lane in lanes):
            return controls
    return None


@cache
def one_source(clear: int, set_bits: int, guard: int, wanted: int) -> int | None:
    """The only lane that those lanes read, if it is one."""
    found = {lane & ~clear | set_bits for lane in range(LANES) if lane & guard == wanted}
    return found.pop() if len(found) == 1 else None


@cache
def swizzle(clear: int, set_bits: int) -> int | None:
    """The offset of a ``ds_swizzle_b32`` for such a step, which stays in halves of 32 lanes; None where the step does not."""
    if (clear | set_bits) & 32:
        return None
    return (31 & ~clear) | set_bits << 5


@cache
def xor_steps(mask: int, same: int = 0) -> tuple[str, ...]:
    """The fewest controls for an XOR below 16, where lanes that differ in bits of `same` hold equal values."""
    equal = [mask ^ bits for bits in range(16) if not bits & ~same]
    for other in equal:
        if other in _BY_XOR:
            return (_BY_XOR[other],)
    return next((_BY_XOR[a], _BY_XOR[a ^ mask]) for a in _BY_XOR if a ^ mask in _BY_XOR)
