"""Inline assembly as text: constraints, placeholders, and how many registers elements take. Knows no instruction.

Constraints are those of `tl.inline_asm_elementwise`: outputs (``=r``) before inputs, by letters: h 16 bits, r 32, l 64, f f32, d f64.
"""

from __future__ import annotations

import re

WIDTHS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64}
CLASSES = {"h": "b16", "r": "b32", "l": "b64", "f": "f32", "d": "f64"}
"""Letter to the class of the PTX register."""


def split_constraints(text: str) -> tuple[str, str]:
    """The letters of outputs and of inputs; ValueError for others."""
    outs, ins = "", ""
    for item in (part.strip() for part in text.split(",") if part.strip()):
        if item.startswith("~"):
            continue  # clobbers: nothing is kept in memory across the text
        letter = item.lstrip("=&")
        if letter not in WIDTHS:
            raise ValueError(f"the constraint {item!r} is none of {', '.join(WIDTHS)}, with '=' before outputs")
        if item.startswith("="):
            if ins:
                raise ValueError("outputs come before inputs")
            outs += letter
        else:
            ins += letter
    return outs, ins


def registers_of(bits: int, pack: int, letters: str) -> int:
    """How many of the registers `letters` (the first decides) `pack` elements of `bits` bits take; ValueError where they do not fill them."""
    if not letters:
        raise ValueError("there are fewer constraints than operands need")
    width = WIDTHS[letters[0]]
    if pack * bits % width:
        raise ValueError(
            f"{pack} element{'s' if pack > 1 else ''} of {bits} bits do not fill registers of {width} ({letters[0]!r})"
        )
    count = pack * bits // width
    if count > pack:
        raise ValueError(f"an element of {bits} bits does not fit into a register of {width} ({letters[0]!r})")
    if letters[:count] != letters[0] * count:
        raise ValueError(
            f"{pack} elements of {bits} bits need {count} constraints {letters[0]!r}, not {letters[:count]!r}"
        )
    return count


def substitute(text: str, names: list[str]) -> str:
    """The text with ``$i`` replaced by names, ``$$`` by a dollar sign; ValueError for a number too high."""

    def name(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        if int(match[1]) >= len(names):
            raise ValueError(f"${match[1]} of {len(names)} operands")
        return names[int(match[1])]

    return re.sub(r"\$(\$|\d+)", name, text)


def entry_text(text: str, outs: str, ins: str, before: str = "", after: str = "", params: str = "") -> str:
    """A PTX module with the text in an entry: operands are the registers ``asm_o0``..., ``asm_i0``..., between other statements."""
    names = [f"asm_o{i}" for i in range(len(outs))] + [f"asm_i{i}" for i in range(len(ins))]
    registers = "".join(f".reg .{CLASSES[c]} {n};\n" for c, n in zip(outs + ins, names, strict=True))
    body = substitute(text, names)
    return (
        f".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry asm({params})\n"
        f"{{\n{registers}{before}{{\n{body}\n;\n}}\n{after}ret;\n}}\n"
    )
