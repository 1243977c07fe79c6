"""st.async and red.async: stores and reductions into a CTA of the cluster that signal an mbarrier there when they land."""

from __future__ import annotations

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx.engine import Job
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops.access import ASYNC_STORES, address, items_of, vector_of
from mimw.sim.ptx.ops.atomic import combine_of
from mimw.sim.ptx.ops.bulk_load import Landing
from mimw.sim.ptx.ops.maps import threads_of
from mimw.sim.ptx.ops.mbarrier import barrier_of
from mimw.sim.ptx.registry import Plain, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx, bits_of


def _async_store(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    if "mbarrier::complete_tx::bytes" not in mods:
        raise not_yet(inst.opcode)
    kind, count = mods[-1], vector_of(mods)
    width = bits_of(kind) // 8
    total = width * count
    reduces = inst.opcode.startswith("red")
    op = next((mod for mod in mods if mod in ("add", "min", "max", "inc", "dec", "and", "or", "xor")), "")
    combine = combine_of(op, kind) if reduces else None
    to, bars = address(s, inst.operands[0]), address(s, inst.operands[2])
    gets = [s.m.rd(item, f"b{width * 8}") for item in items_of(inst.operands[1])]

    def run(x: Ctx) -> None:
        places, signals, values = x.full(to(x)), x.full(bars(x)), [x.full(get(x)) for get in gets]
        for row, warp, lane in threads_of(x):
            cta, offset = s.mem.place(warp, int(places[row, lane]), total, total)
            bar_cta, bar_offset = s.mem.place(warp, int(signals[row, lane]), 8, 8)
            if bar_cta != cta:
                raise SimulationError(f"the mbarrier of {inst.opcode} lies in another CTA than its destination")
            if cta in s.clusters.exited:
                s.clusters.touch(cta, 0, 0, s.pc)
            bar = barrier_of(s, warp, cta, bar_offset, touches=False)
            landing = Landing(
                s, warp, lane, cta, np.array([offset]), total, bar, "the asynchronous store", reduces, False
            )
            start = cta * s.mem.stride + offset
            new = np.array([value[row, lane] for value in values])

            def part(landing: Landing = landing, start: int = start, new: Array = new) -> None:
                place = s.mem.shared.view(width)[start // width : start // width + count]
                place[:] = new if combine is None else combine(place.copy(), new)
                landing.land(s, total)

            s.engine.issue(Job(warp, lane, s.pc, [part], 0, {cta}))

    return run


ASYNC_STORES["st"] = _async_store
ASYNC_STORES["red"] = _async_store
