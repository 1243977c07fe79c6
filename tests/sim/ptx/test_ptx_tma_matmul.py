"""A TMA warp-specialised matmul in a cluster of two: one producer warp, two consumer warp groups, B multicast, TMA store.

Every piece of its protocol is dropped or weakened once; the checks must tell each, under every schedule.
"""

from __future__ import annotations

import pathlib
import subprocess
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.codegen.ptx.assemble import find_ptxas
from mimw.sim.ptx import tensor_map
from mimw.sim.ptx.errors import SimulationError

from .mimw_programs import LOAD, STORE, kernel, run
from .test_ptx_cluster import MULTICAST
from .test_ptx_mma import descriptor
from .test_ptx_tma import EDIT

N, STAGES = 64, 3
A_BYTES, B_BYTES = 128 * 128, N * 128
STAGE = A_BYTES + B_BYTES
OUT = STAGES * STAGE
FULL = OUT + 128 * N * 2
EMPTY = FULL + 8 * STAGES
SHARED = EMPTY + 8 * STAGES
ACC = [f"f{i}" for i in range(N // 2)]
SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
FAST = "barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;"


def text() -> str:
    """C[256 x clusters, 64] = A @ B^T; CTA x has 128 rows of A, each CTA of a cluster loads half of B for both. N0: K / 64."""
    inits = "".join(
        f"mbarrier.init.shared::cta.b64 [r1+{FULL + 8 * i}], 1; mbarrier.init.shared::cta.b64 [r1+{EMPTY + 8 * i}], 4;\n"
        for i in range(STAGES)
    )
    mmas = "".join(
        f"""add.u64 d12, d10, {2 * k}; add.u64 d13, d11, {2 * k};
        wgmma.mma_async.sync.aligned.m64n{N}k16.f32.bf16.bf16 {{{", ".join(ACC)}}}, d12, d13, p{3 if k == 0 else 4}, 1, 1, 0, 0;\n"""
        for k in range(4)
    )
    # stmatrix of 16 x 16 pieces into the swizzled rows of the output tile
    packs = "".join(f"cvt.rn.bf16x2.f32 r{100 + i}, f{2 * i + 1}, f{2 * i};\n" for i in range(N // 4))
    stores = "".join(
        f"xor.b32 r51, r50, {j << 5}; stmatrix.sync.aligned.m8n8.x4.shared.b16 [r51], {{r{100 + 4 * j}, r{101 + 4 * j}, r{102 + 4 * j}, r{103 + 4 * j}}};\n"
        for j in range(N // 16)
    )
    step = f"""add.u32 r20, r20, 1; add.u32 r21, r21, 1; setp.eq.u32 p6, r21, {STAGES}; selp.u32 r21, 0, r21, p6; @p6 xor.b32 r22, r22, 1;
    setp.lt.u32 p7, r20, r7;"""
    body = f"""
    ld.param.u32 r7, [N0]; mov.u32 r8, %ctaid.x; shl.b32 r8, r8, 7; mov.pred p4, 1;
    setp.ne.u32 p1, r0, 0; @p1 bra READY;
    {inits}
    fence.mbarrier_init.release.cluster;
READY: {SYNC}
    mov.u32 r20, 0; mov.u32 r21, 0; mov.u32 r22, 0;
    setp.ge.u32 p2, r0, 256; @p2 bra PRODUCER;
    setmaxnreg.inc.sync.aligned.u32 232;
    shr.u32 r9, r0, 7; and.b32 r10, r0, 127; setp.eq.u32 p8, r10, 0;
    mapa.shared::cluster.u32 r11, r1, 0; mapa.shared::cluster.u32 r12, r1, 1;
CONSUME:
    mad.lo.u32 r23, r21, 8, r1;
WF: mbarrier.try_wait.parity.shared::cta.b64 p9, [r23+{FULL}], r22; @!p9 bra WF;
    mad.lo.u32 r24, r21, {STAGE}, r1; mad.lo.u32 r25, r9, {A_BYTES // 2}, r24;
    shr.u32 r26, r25, 4; cvt.u64.u32 d10, r26; or.b64 d10, d10, {descriptor(1, 16, 1024)};
    add.u32 r27, r24, {A_BYTES}; shr.u32 r27, r27, 4; cvt.u64.u32 d11, r27; or.b64 d11, d11, {descriptor(1, 16, 1024)};
    setp.ne.u32 p3, r20, 0;
    wgmma.fence.sync.aligned;
    {mmas}
    wgmma.commit_group.sync.aligned;
    setp.eq.u32 p5, r20, 0; @p5 bra FIRST;
    wgmma.wait_group.sync.aligned 1;
    @p8 mbarrier.arrive.shared::cluster.b64 _, [r30+{EMPTY}]; @p8 mbarrier.arrive.shared::cluster.b64 _, [r31+{EMPTY}];
FIRST:
    mad.lo.u32 r30, r21, 8, r11; mad.lo.u32 r31, r21, 8, r12;
    {step} @p7 bra CONSUME;
    wgmma.wait_group.sync.aligned 0;
    {packs}
    and.b32 r52, r0, 31; and.b32 r53, r0, 15; shr.u32 r54, r52, 4; shr.u32 r55, r0, 5; mad.lo.u32 r55, r55, 16, r53;
    shl.b32 r56, r55, 7; add.u32 r56, r56, {OUT}; add.u32 r56, r56, r1; and.b32 r57, r0, 7; xor.b32 r58, r54, r57; shl.b32 r58, r58, 4;
    add.u32 r50, r56, r58;
    {stores}
    fence.proxy.async.shared::cta;
    bar.sync 1, 256;
    setp.ne.u32 p10, r0, 0; @p10 bra OUT;
    {STORE.format(rank=2)} [d52, {{0, r8}}], [r1+{OUT}];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    bra OUT;
PRODUCER:
    setmaxnreg.dec.sync.aligned.u32 40;
    setp.ne.u32 p11, r0, 256; @p11 bra OUT;
    mov.u32 r22, 1; mul.lo.u32 r40, r2, {B_BYTES // 2}; add.u32 r40, r40, {A_BYTES}; mul.lo.u32 r41, r2, {N // 2}; mov.b16 h1, 3;
PRODUCE:
    mad.lo.u32 r23, r21, 8, r1;
WE: mbarrier.try_wait.parity.shared::cta.b64 p9, [r23+{EMPTY}], r22; @!p9 bra WE;
    mad.lo.u32 r24, r21, {STAGE}, r1; add.u32 r42, r24, r40; shl.b32 r43, r20, 6;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [r23+{FULL}], {STAGE};
    {LOAD.format(rank=2)} [r24], [d50, {{r43, r8}}], [r23+{FULL}];
    {LOAD.format(rank=2)}.multicast::cluster [r42], [d51, {{r43, r41}}], [r23+{FULL}], h1;
    {step} @p7 bra PRODUCE;
OUT:
    {FAST}
    """
    return kernel(body, 3, 0, 384, 2, "N0", ".minnctapersm 1")


def go(source: str, clusters: int, steps: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    k = 64 * steps
    a = rng.standard_normal((256 * clusters, k)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((N, k)).astype(ml_dtypes.bfloat16)
    out = np.zeros((256 * clusters, N), ml_dtypes.bfloat16)
    maps = [
        tensor_map.encode(x, "bf16", x.shape[::-1], x.strides[:1], box, swizzle=128)
        for x, box in ((a, (64, 128)), (b, (64, N // 2)), (out, (64, 128)))
    ]
    run(source, *maps, steps, shared=SHARED, grid=2 * clusters, seed=seed)
    return out.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7])
def test_matmul(steps: int) -> None:
    got, want = go(text(), 2, steps, steps % 3)
    assert np.abs(got - want).max() <= 2.0**-8 * np.abs(want).max()


MUTANTS = [
    ("fence.mbarrier_init.release.cluster;", "", "not yet visible"),
    (SYNC, "bar.sync 0;", r"was not initialised|without a barrier after"),
    (f"WF: mbarrier.try_wait.parity.shared::cta.b64 p9, [r23+{FULL}], r22; @!p9 bra WF;", "", "race: this (wgmma|TMA load) by|deadlock"),
    (f"WE: mbarrier.try_wait.parity.shared::cta.b64 p9, [r23+{EMPTY}], r22; @!p9 bra WE;", "", "race: this TMA load|arrivals too many"),
    ("wgmma.fence.sync.aligned;", "", r"wgmma\.fence is missing"),
    ("wgmma.wait_group.sync.aligned 1;", "", "race: this TMA load by .* wgmma of warp group"),
    ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", "in flight still writes it"),
    (f"@p8 mbarrier.arrive.shared::cluster.b64 _, [r31+{EMPTY}];", "", "deadlock"),
    (f"@p8 mbarrier.arrive.shared::cluster.b64 _, [r31+{EMPTY}];", f"@p8 mbarrier.arrive.shared::cluster.b64 _, [r30+{EMPTY}];",
     "deadlock|arrivals too many|race"),
    (f", {STAGE};", f", {STAGE - 4096};", "more than expected|race"),
    ("mov.u32 r22, 1;", "mov.u32 r22, 0;", "deadlock"),
    ("fence.proxy.async.shared::cta;", "", "the TMA store reads bytes .* through the generic proxy"),
    ("bar.sync 1, 256;", "", "race: this TMA store|bar.warp.sync after the fence"),
    ("cp.async.bulk.wait_group.read 0;", "", "exits without cp.async.bulk.wait_group"),
    (FAST, "", "exits without knowing|has exited"),
    ("mov.b16 h1, 3;", "mov.b16 h1, 1;", "deadlock|arrivals too many|race|more than expected"),
    ("setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg.dec.sync.aligned.u32 48;", "more registers a thread of the CTA's pool"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), MUTANTS)
@pytest.mark.parametrize("seed", [0, 5])
def test_mutants(old: str, new: str, message: str, seed: int) -> None:
    source = text()
    assert old in source
    with pytest.raises(SimulationError, match=message):
        go(source.replace(old, new), 1, 6, seed)


def test_ptxas_takes_the_texts(tmp_path: pathlib.Path) -> None:
    """No spill, no serialised wgmma, no ignored setmaxnreg."""
    ptxas = find_ptxas()
    if ptxas is None:
        pytest.skip("no ptxas")
    for name, source in (
        ("matmul", text()),
        ("multicast", kernel(MULTICAST, 1, 1, cluster=2)),
        ("edit", kernel(EDIT, pointers=3)),
    ):
        path = tmp_path / f"{name}.ptx"
        path.write_text(source)
        done = subprocess.run(
            [ptxas, "-arch=sm_90a", "-v", str(path), "-o", str(path.with_suffix(".cubin"))],
            capture_output=True,
            text=True,
        )
        log = done.stdout + done.stderr
        assert done.returncode == 0, log
        assert "C75" not in log and " 0 bytes spill stores" in log
