"""What every allocator asks of a function in SSA form: which parameters are only another name, what is live across the ends of blocks.

Sets are int bitsets; what a bit stands for (a value, a 32-bit part of one) is the caller's. Assumes reachable blocks, each with a
terminator, and edges that bring as many values as there are parameters. Knows no target and no opcode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mimw.codegen.machine import Block, Imm, Reg


def bits(mask: int) -> list[int]:
    """The indices of the ones of `mask`, ascending."""
    text = bin(mask)[:1:-1]
    found: list[int] = []
    at = text.find("1")
    while at >= 0:
        found.append(at)
        at = text.find("1", at + 1)
    return found


def named(reg: Reg, alias: dict[Reg, Reg]) -> Reg:
    """The value that stands for `reg`, through aliases of aliases."""
    while reg in alias:
        reg = alias[reg]
    return reg


def trivial_parameters(blocks: Sequence[Block], alike: Callable[[Reg, Reg], bool]) -> dict[Reg, Reg]:
    """Parameters that only ever get one register value (or themselves), each with a value that it is.

    `alike(value, parameter)` says whether the two are held in the same way, so that one can be the other's name.
    """
    incoming: dict[Reg, list[Reg | Imm]] = {}
    for block in blocks:
        assert block.term is not None
        for edge in block.term.edges:
            for param, arg in zip(edge.block.params, edge.args, strict=True):
                incoming.setdefault(param, []).append(arg)
    alias: dict[Reg, Reg] = {}
    changed = True
    while changed:
        changed = False
        for param, args in incoming.items():
            if param in alias:
                continue
            others = {named(arg, alias) if isinstance(arg, Reg) else arg for arg in args} - {param}
            only = others.pop() if len(others) == 1 else None
            if isinstance(only, Reg) and alike(only, param):
                alias[param] = only
                changed = True
    return alias


def end_reads(block: Block, alias: dict[Reg, Reg]) -> list[Reg]:
    """What the terminator reads: its condition and the arguments of parameters that are no aliases."""
    assert block.term is not None
    reads = [block.term.cond] if block.term.cond is not None else []
    for edge in block.term.edges:
        for param, arg in zip(edge.block.params, edge.args, strict=True):
            if isinstance(arg, Reg) and param not in alias:
                reads.append(arg)
    return reads


def live_at_ends(blocks: Sequence[Block], uses: Callable[[Block], tuple[int, int]]) -> tuple[int, dict[int, int]]:
    """(live where the first block starts, live where each block ends beyond its own edge arguments, by the block's id).

    `uses(block)` says what a block reads before it writes it, edge arguments included, and what it writes, parameters included.
    """
    needs: dict[int, int] = {}
    gives: dict[int, int] = {}
    for block in blocks:
        needs[id(block)], gives[id(block)] = uses(block)
    live_in, live_out = dict(needs), dict.fromkeys(needs, 0)
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            assert block.term is not None
            key, out = id(block), 0
            for edge in block.term.edges:
                out |= live_in[id(edge.block)]
            live_out[key] = out
            new = needs[key] | (out & ~gives[key])
            if new != live_in[key]:
                live_in[key] = new
                changed = True
    return (live_in[id(blocks[0])] if blocks else 0), live_out
