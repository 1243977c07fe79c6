"""What lanes of a warp do together: shfl, vote, match, redux, activemask, elect, ldmatrix, stmatrix, movmatrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops.access import address, items_of, sanitize, space_of, stored_bytes
from mimw.sim.ptx.ops.bits import popcount
from mimw.sim.ptx.ops.moves import second_result
from mimw.sim.ptx.ops.sync import members_ready, together
from mimw.sim.ptx.registry import Step, Sync, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx, dtype_of

LANES = np.arange(32)
_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)


def _bits(lanes: Array) -> Array:
    """Lane sets (n, 32) bool as words (n, 1)."""
    return (lanes * _BITS).sum(axis=1, dtype=np.uint32)[:, None]


def _peers(x: Ctx, members: Array) -> Array:
    """The executing lanes that a lane's member mask names: words (n, 32)."""
    return members & _bits(x.active())


@executes("shfl")
def _shfl(s: Sim, inst: Inst, mods: list[str]) -> Step:
    if mods[0] != "sync":
        raise not_yet("shfl without .sync")
    mode = mods[1]
    first, second = second_result(inst.operands[0])
    put, put2 = s.m.wr(first, "b32"), s.m.wr(second, "pred")  # type: ignore[arg-type]
    a, b, c = (s.m.rd(op, "u32") for op in inst.operands[1:4])

    def run(x: Ctx) -> None:
        value, by, bound = x.full(a(x)), b(x).astype(np.int64) & 31, c(x).astype(np.int64)
        segment, clamp = (bound >> 8) & 31, bound & 31
        top, low = (LANES & segment) | (clamp & ~segment & 31), LANES & segment
        source = {"up": LANES - by, "down": LANES + by, "bfly": LANES ^ by, "idx": low | (by & ~segment & 31)}[mode]
        inside = source >= top if mode == "up" else source <= top
        source = np.broadcast_to(np.where(inside, source, LANES), (x.n, 32))
        if x.mask is not None:
            bad = x.mask & ~np.take_along_axis(x.mask, source, axis=1)
            if bad.any():
                raise SimulationError("shfl reads a lane that does not execute it", where=s.m.where(x, bad))
        put(x, np.take_along_axis(value, source, axis=1))
        put2(x, x.full(inside))

    return Sync(members_ready(s, inst.operands[4]), run)


@executes("vote")
def _vote(s: Sim, inst: Inst, mods: list[str]) -> Step:
    if mods[0] != "sync":
        raise not_yet("vote without .sync")
    mode, mask_op = mods[1], inst.operands[2]
    a, members = s.m.rd(inst.operands[1], "pred"), s.m.rd(mask_op, "u32")
    put = s.m.wr(inst.operands[0], "b32" if mode == "ballot" else "pred")

    def run(x: Ctx) -> None:
        peers = _peers(x, x.full(members(x)))
        yes = _bits(x.full(a(x)) & x.active()) & peers
        results: dict[str, Callable[[], Array]] = {
            "ballot": lambda: yes, "any": lambda: yes != 0, "all": lambda: yes == peers,
            "uni": lambda: (yes == peers) | (yes == 0),
        }  # fmt: skip
        put(x, results[mode]())

    return Sync(members_ready(s, mask_op), run)


@executes("match")
def _match(s: Sim, inst: Inst, mods: list[str]) -> Step:
    mode, kind, mask_op = mods[0], mods[-1], inst.operands[2]
    first, second = second_result(inst.operands[0])
    put, put2 = s.m.wr(first, "b32"), s.m.wr(second, "pred")  # type: ignore[arg-type]
    a, members = s.m.rd(inst.operands[1], kind), s.m.rd(mask_op, "u32")

    def run(x: Ctx) -> None:
        value, peers = x.full(a(x)), _peers(x, x.full(members(x)))
        same = ((value[:, :, None] == value[:, None, :]) * _BITS).sum(axis=2, dtype=np.uint32) & peers
        if mode == "any":
            put(x, same)
            return
        every = same == peers
        put(x, np.where(every, peers, np.uint32(0)))
        put2(x, every)

    return Sync(members_ready(s, mask_op), run)


@executes("redux")
def _redux(s: Sim, inst: Inst, mods: list[str]) -> Step:
    op, kind, mask_op = mods[1], mods[-1], inst.operands[2]
    if kind == "f32":
        raise not_yet("redux.sync on f32")
    a, members, put = s.m.rd(inst.operands[1], kind), s.m.rd(mask_op, "u32"), s.m.wr(inst.operands[0], kind)
    folds: dict[str, Callable[[Array], Array]] = {
        "add": lambda v: v.sum(dtype=v.dtype), "min": np.min, "max": np.max, "and": np.bitwise_and.reduce,
        "or": np.bitwise_or.reduce, "xor": np.bitwise_xor.reduce,
    }  # fmt: skip
    fold, dtype = folds[op], dtype_of(kind)

    def run(x: Ctx) -> None:
        value, peers = x.full(a(x)), _peers(x, x.full(members(x)))
        out = np.zeros((x.n, 32), dtype)
        for row in range(x.n):
            for group in np.unique(peers[row][x.active()[row]]).tolist():
                out[row][peers[row] == group] = fold(value[row][(np.uint32(group) & _BITS) != 0])
        put(x, out)

    return Sync(members_ready(s, mask_op), run)


@executes("activemask")
def _activemask(s: Sim, inst: Inst, mods: list[str]) -> Step:
    put = s.m.wr(inst.operands[0], "b32")
    return lambda x: put(x, _bits(x.active()))


@executes("elect")
def _elect(s: Sim, inst: Inst, mods: list[str]) -> Step:
    first, second = second_result(inst.operands[0])
    put, put2 = s.m.wr(first, "b32"), s.m.wr(second, "pred")  # type: ignore[arg-type]
    members = s.m.rd(inst.operands[1], "u32")

    def run(x: Ctx) -> None:
        peers = _peers(x, x.full(members(x)))
        lowest = peers & (~peers + np.uint32(1))
        put(x, popcount(lowest - np.uint32(1)))
        put2(x, lowest == _BITS)

    return Sync(members_ready(s, inst.operands[1]), run)


# -- 8x8 matrices -------------------------------------------------------------------------------------------------


def _matrix_count(mods: list[str]) -> int:
    return next(int(mod[1:]) for mod in mods if mod in ("x1", "x2", "x4"))


def _rows_ctx(x: Ctx, count: int) -> Ctx:
    """The lanes whose addresses an instruction on `count` matrices uses."""
    return Ctx(x.warps, None if count == 4 else np.broadcast_to(8 * count > LANES, (x.n, 32)))


def _check_shape(inst: Inst, mods: list[str]) -> None:
    if "m8n8" not in mods or mods[-1] != "b16":
        raise not_yet(inst.opcode)


@executes("ldmatrix")
def _ldmatrix(s: Sim, inst: Inst, mods: list[str]) -> Step:
    _check_shape(inst, mods)
    count, trans, space = _matrix_count(mods), "trans" in mods, space_of(mods)
    addr = address(s, inst.operands[1])
    puts = [s.m.wr(op, "b32") for op in items_of(inst.operands[0])]
    g, t = LANES // 4, LANES % 4

    def run(x: Ctx) -> None:
        rows = _rows_ctx(x, count)
        access = s.mem.locate(rows, space, addr(x), 16, False)
        sanitize(s, access, 16, False)
        data = np.stack(s.mem.load(rows, access, 2, 8), axis=-1).astype(np.uint32)
        for i, put in enumerate(puts):
            tile = data[:, 8 * i : 8 * i + 8]
            low, high = (
                (tile[:, 2 * t, g], tile[:, 2 * t + 1, g]) if trans else (tile[:, g, 2 * t], tile[:, g, 2 * t + 1])
            )
            put(x, low | (high << np.uint32(16)))

    return Sync(together(s), run)


@executes("stmatrix")
def _stmatrix(s: Sim, inst: Inst, mods: list[str]) -> Step:
    _check_shape(inst, mods)
    count, trans, space = _matrix_count(mods), "trans" in mods, space_of(mods)
    addr = address(s, inst.operands[0])
    gets = [s.m.rd(op, "b32") for op in items_of(inst.operands[1])]
    g, t = LANES // 4, LANES % 4

    def run(x: Ctx) -> None:
        rows = _rows_ctx(x, count)
        access = s.mem.locate(rows, space, addr(x), 16, True)
        data = np.zeros((x.n, 32, 8), np.uint16)
        for i, get in enumerate(gets):
            word = x.full(get(x))
            tile = data[:, 8 * i : 8 * i + 8]
            for half in (0, 1):
                part = (word >> np.uint32(16 * half)).astype(np.uint16)
                if trans:
                    tile[:, 2 * t + half, g] = part
                else:
                    tile[:, g, 2 * t + half] = part
        values = [data[:, :, k] for k in range(8)]
        sanitize(s, access, 16, True, new=stored_bytes(rows, values))
        s.mem.store(rows, access, 2, values)

    return Sync(together(s), run)


@executes("movmatrix")
def _movmatrix(s: Sim, inst: Inst, mods: list[str]) -> Step:
    _check_shape(inst, mods)
    a, put = s.m.rd(inst.operands[1], "b32"), s.m.wr(inst.operands[0], "b32")
    g, t = LANES // 4, LANES % 4

    def run(x: Ctx) -> None:
        word = x.full(a(x))
        tile = np.zeros((x.n, 8, 8), np.uint32)
        tile[:, g, 2 * t], tile[:, g, 2 * t + 1] = word & np.uint32(0xFFFF), word >> np.uint32(16)
        put(x, tile[:, 2 * t, g] | (tile[:, 2 * t + 1, g] << np.uint32(16)))

    return Sync(together(s), run)
