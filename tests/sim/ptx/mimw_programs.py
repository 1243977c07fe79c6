"""Frames for PTX texts with tensor maps, mbarriers and clusters."""

from __future__ import annotations

from mimw.sim.ptx.run import RunReport, run_ptx

REGS = ".reg .pred p<40>; .reg .b16 h<40>; .reg .b32 r<300>; .reg .b64 d<60>; .reg .f32 f<80>;"
LOAD = "cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group"


def kernel(
    body: str, maps: int = 0, pointers: int = 0, threads: int = 32, cluster: int = 1, scalars: str = "", extra: str = ""
) -> str:
    """An entry `k`: tensor maps M0.. (addresses in d50..), pointers P0.. (in d0..), .u32 scalars; r0 %tid.x, r1 shared base.

    r2 is the CTA's rank in its cluster, r3 the warp.
    """
    params = [f".param .align 64 .b8 M{i}[128]" for i in range(maps)]
    params += [f".param .u64 P{i}" for i in range(pointers)] + [f".param .u32 {name}" for name in scalars.split()]
    loads = "".join(f"mov.b64 d{50 + i}, M{i}; cvta.param.u64 d{50 + i}, d{50 + i};\n" for i in range(maps))
    loads += "".join(f"ld.param.u64 d{i}, [P{i}];\n" for i in range(pointers))
    clusters = f".explicitcluster\n.reqnctapercluster {cluster}, 1, 1" if cluster > 1 else ""
    return f""".version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k({", ".join(params)})
.reqntid {threads}, 1, 1
{extra}
{clusters}
{{
{REGS}
{loads}
mov.u32 r0, %tid.x; mov.u32 r1, smem; mov.u32 r2, %cluster_ctarank; shr.u32 r3, r0, 5;
{body}
ret;
}}
"""


def run(text: str, *args: object, shared: int = 4096, grid: int = 1, seed: int = 0) -> RunReport:
    """Run entry `k`."""
    return run_ptx(text, "k", (grid, 1, 1), list(args), shared_bytes=shared, seed=seed)  # type: ignore[arg-type]
