"""The forms of cp.async.bulk and cp.reduce.async.bulk: which of the engine's copies each one starts."""

from __future__ import annotations

from mimw.codegen.machine import Inst
from mimw.sim.ptx.ops.bulk_load import Between, PlainLoad, TensorLoad, coordinates
from mimw.sim.ptx.ops.bulk_store import PlainStore, TensorStore, commit, wait
from mimw.sim.ptx.ops.maps import read_map, threads_of
from mimw.sim.ptx.registry import Plain, Step, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx

_LATER = ("im2col", "im2col::w", "im2col::w::128", "im2col_no_offs", "tile::gather4", "tile::scatter4", "cp_mask")


def bulk_copy(s: Sim, inst: Inst, mods: list[str]) -> Step:
    """The step of a cp instruction with .bulk."""
    if "commit_group" in mods:
        return commit(s)
    if "wait_group" in mods:
        return wait(s, inst, "read" in mods)
    if not set(_LATER).isdisjoint(mods):
        raise not_yet(inst.opcode)
    if "prefetch" in mods:
        return _prefetch(s, inst, "tensor" in mods)
    if "bulk_group" in mods:
        return TensorStore(s, inst, mods).run if "tensor" in mods else PlainStore(s, inst, mods).run
    if "tensor" in mods:
        return TensorLoad(s, inst, mods).run
    return (PlainLoad if "global" in mods else Between)(s, inst, mods).run


def _prefetch(s: Sim, inst: Inst, tensor: bool) -> Plain:
    if not tensor:
        return lambda x: None
    maps, _ = coordinates(s, inst.operands[0])

    def run(x: Ctx) -> None:
        at = x.full(maps(x))
        for row, warp, lane in threads_of(x):
            read_map(s, warp, lane, int(at[row, lane]))

    return run
