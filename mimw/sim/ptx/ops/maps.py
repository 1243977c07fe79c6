"""Tensor maps in memory: reading the 128 bytes at an address, editing them, and the fences that publish an edit."""

from __future__ import annotations

import numpy as np

from mimw.codegen.machine import Imm, Inst
from mimw.sim.ptx import tensor_map
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.memory import Access
from mimw.sim.ptx.ops.access import address, sanitize
from mimw.sim.ptx.ops.sync import together
from mimw.sim.ptx.registry import Plain, Step, Sync, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx
from mimw.sim.ptx.tensor_map import SIZE, TensorMap


def one_lane(x: Ctx, row: int, lane: int) -> Ctx:
    """The context of a single thread of a group."""
    mask = np.zeros((1, 32), np.bool_)
    mask[0, lane] = True
    return Ctx(x.warps[row : row + 1], mask)


def threads_of(x: Ctx) -> list[tuple[int, int, int]]:
    """(row, warp, lane) of each executing thread."""
    return [(int(row), int(x.warps[row]), int(lane)) for row, lane in np.argwhere(x.active())]


def read_map(s: Sim, warp: int, lane: int, at: int) -> TensorMap:
    """The tensor map at a generic address: a parameter, a constant, or published in global memory."""
    if at % 64:
        raise SimulationError(f"tensor map at {at:#x}: its address is no multiple of 64", where=s.m.thread(warp, lane))
    region = s.world.find(at)
    if region is None or at + SIZE > region.base + region.size:
        raise SimulationError(
            f"tensor map at {at:#x}, outside every global allocation: {s.world.nearest(at)}",
            where=s.m.thread(warp, lane),
        )
    seen = s.map_acquires.get((warp // s.m.warps_per_cta, at), 0)
    if s.map_edits.get(at, 0) > seen:
        raise SimulationError(
            "the tensor map was edited on the device: fence.proxy.tensormap::generic.acquire of it by this CTA is missing",
            where=s.m.thread(warp, lane),
        )
    data = region.data[at - region.base : at - region.base + SIZE].tobytes()
    found = s.maps.get(data)
    if found is None:
        found = s.maps[data] = _checked(s, data)
    return found


def _checked(s: Sim, data: bytes) -> TensorMap:
    found = tensor_map.decode(data)
    if found.host:
        found.address, found.host = s.world.device_address(found.address), False
    problem = tensor_map.check(found)
    if problem:
        raise SimulationError(f"invalid tensor map: {problem}")
    if found.interleave:
        raise not_yet("interleaved tensor maps")
    if found.type.endswith("_ftz") or found.type == "tf32":
        raise not_yet(f"tensor maps of {found.type}, which round what they load,")
    inner = found.box[0] * found.item_bytes
    if found.swizzle and inner != found.swizzle:
        raise not_yet(f"a box of {inner} bytes in a swizzle span of {found.swizzle}")
    return found


def acquire_map(s: Sim, inst: Inst) -> Plain:
    """fence.proxy.tensormap::generic.acquire: edits published before are seen by the CTA's later copies."""
    addr = address(s, inst.operands[0])
    size = inst.operands[1]
    if not isinstance(size, Imm) or size.value != SIZE:
        raise SimulationError("fence.proxy.tensormap::generic.acquire covers 128 bytes", inst)

    def run(x: Ctx) -> None:
        s.fences[inst.opcode] += x.n
        values = x.full(addr(x))
        for row, warp, lane in threads_of(x):
            at = int(values[row, lane])
            s.map_acquires[warp // s.m.warps_per_cta, at] = s.map_edits.get(at, 0)

    return run


def _bytes_at(s: Sim, x: Ctx, space: str, at: int, store: bool) -> tuple[Access, Array]:
    """The 128 bytes (a view) that the one lane of `x` names."""
    if at % SIZE:
        raise SimulationError(f"tensor map at {at:#x}: its address is no multiple of 128")
    access = s.mem.locate(x, space, np.full((1, 32), at), SIZE, store)
    region, index, _, _ = access.parts[0]
    sanitize(s, access, SIZE, store)
    return access, region.data[int(index[0]) : int(index[0]) + SIZE]


@executes("tensormap")
def _tensormap(s: Sim, inst: Inst, mods: list[str]) -> Step:
    if mods[0] == "cp_fenceproxy":
        return Sync(together(s), _publish(s, inst))
    if mods[0] != "replace" or mods[1] != "tile":
        raise not_yet(inst.opcode)
    field, space = mods[2], "shared" if "shared::cta" in mods else "global" if "global" in mods else "generic"
    addr, value = address(s, inst.operands[0]), s.m.rd(inst.operands[-1], "u64" if mods[-1] == "b64" else "u32")
    order = inst.operands[1] if len(inst.operands) == 3 else None
    ordinal = order.value if isinstance(order, Imm) else 0

    def run(x: Ctx) -> None:
        places, values = x.full(addr(x)), x.full(value(x))
        for row, _, lane in threads_of(x):
            one, at = one_lane(x, row, lane), int(places[row, lane])
            access, data = _bytes_at(s, one, space, at, True)
            new = tensor_map.replace(data.tobytes(), field, ordinal, int(values[row, lane]))
            data[:] = np.frombuffer(new, np.uint8)
            if not access.parts[0][3]:
                s.map_edits[at] = s.map_edits.get(at, 0) + 1

    return run


def _publish(s: Sim, inst: Inst) -> Plain:
    """tensormap.cp_fenceproxy: copy an edited map from shared to global memory, once a warp."""
    target, source = address(s, inst.operands[0]), address(s, inst.operands[1])

    def run(x: Ctx) -> None:
        to, out_of = x.full(target(x)), x.full(source(x))
        for row in range(x.n):
            lane = int(x.active()[row].argmax())
            one = one_lane(x, row, lane)
            data = _bytes_at(s, one, "shared", int(out_of[row, lane]), False)[1]
            at = int(to[row, lane])
            _bytes_at(s, one, "generic", at, True)[1][:] = data
            s.map_edits[at] = s.map_edits.get(at, 0) + 1

    return run
