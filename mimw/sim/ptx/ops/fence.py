"""fence and membar: memory order is the sanitizer's, so that only the proxies' fences do something."""

from __future__ import annotations

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx.ops.maps import acquire_map
from mimw.sim.ptx.registry import Step, executes
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx


@executes("fence", "membar")
def _fence(s: Sim, inst: Inst, mods: list[str]) -> Step:
    name = inst.opcode
    proxied = mods[:2] == ["proxy", "async"] and (len(mods) < 3 or not mods[2].startswith("global"))
    if mods[:2] == ["proxy", "tensormap::generic"] and "acquire" in mods:
        return acquire_map(s, inst)

    def run(x: Ctx) -> None:
        s.fences[name] += x.n
        if proxied and s.san is not None:
            s.san.fence_async(x.warps, x.active())
        if proxied or mods[0] == "mbarrier_init":
            _publish_barriers(s, x)

    return run


def _publish_barriers(s: Sim, x: Ctx) -> None:
    """The mbarriers that these threads initialised may be used by the async proxy from now on."""
    for bar in [bar for bar in s.unfenced if bar.init_warp in x.warps]:
        row = int(np.nonzero(x.warps == bar.init_warp)[0][0])
        if x.active()[row, bar.init_lane]:
            bar.fenced = True
            s.unfenced.remove(bar)
