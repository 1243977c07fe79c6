"""PTX texts for the simulator's tests: a frame around a body, and one instruction run on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.sim.ptx.run import run_ptx

_REGS = ".reg .pred p<40>; .reg .b16 h<40>; .reg .b32 r<300>; .reg .b64 d<60>; .reg .f32 f<80>; .reg .f64 g<20>;"


def frame(body: str, pointers: int = 1, threads: int = 32, module: str = "", scalars: str = "") -> str:
    """An entry `k` with pointer parameters P0.. (loaded into d0..) and .u32 scalars (by name), `%tid.x` in r0."""
    params = [f".param .u64 P{i}" for i in range(pointers)] + [f".param .u32 {name}" for name in scalars.split()]
    loads = "\n".join(f"ld.param.u64 d{i}, [P{i}];" for i in range(pointers))
    return f""".version 8.6
.target sm_90a
.address_size 64
{module}
.visible .entry k({", ".join(params)})
.reqntid {threads}, 1, 1
{{
{_REGS}
{loads}
mov.u32 r0, %tid.x;
{body}
ret;
}}
"""


SMEM = ".extern .shared .align 1024 .b8 smem[];"
_KIND = {2: ("b16", "h"), 4: ("b32", "r"), 8: ("b64", "d"), 1: ("b8", "h")}


def apply(inst: str, *sources: Any, out: Any, seed: int = 0) -> Any:
    """Run `inst` (a format string with {o}, {0}, {1}, ...) once per element; returns an array of dtype `out`."""
    arrays = [np.ascontiguousarray(a) for a in sources]
    count = arrays[0].size
    result = np.zeros(count, out)
    names: list[str] = []
    body = ["mov.u32 r1, %ctaid.x; shl.b32 r1, r1, 5; add.u32 r0, r0, r1;"]
    for i, array in enumerate(arrays):
        if array.dtype == np.bool_:
            body.append(
                f"cvt.u64.u32 d40, r0; add.u64 d40, d40, d{i}; ld.global.u8 h{30 + i}, [d40]; setp.ne.u16 p{30 + i}, h{30 + i}, 0;"
            )
            names.append(f"p{30 + i}")
            continue
        kind, prefix = _KIND[array.dtype.itemsize]
        names.append(f"{prefix}{30 + i}")
        body.append(f"mad.wide.u32 d40, r0, {array.dtype.itemsize}, d{i}; ld.global.{kind} {names[-1]}, [d40];")
    size = np.dtype(out).itemsize
    kind, prefix = _KIND[size]
    target = "p39" if np.dtype(out) == np.bool_ else f"{prefix}39"
    body.append(inst.format(*names, o=target))
    if np.dtype(out) == np.bool_:
        body.append("selp.u16 h39, 1, 0, p39;")
        target = "h39"
    body.append(f"mad.wide.u32 d40, r0, {size}, d{len(arrays)}; st.global.{kind} [d40], {target};")
    pad = -count % 32
    padded = [np.concatenate([a.reshape(-1), a.reshape(-1)[:1].repeat(pad)]) for a in arrays]
    full = np.zeros(count + pad, out)
    text = frame("\n".join(body), len(arrays) + 1)
    run_ptx(text, "k", ((count + pad) // 32, 1, 1), [*padded, full], seed=seed)
    result[:] = full[:count]
    return result.reshape(arrays[0].shape)
