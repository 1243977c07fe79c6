"""A warp-specialised matmul: a producer warp group fills a ring with cp.async, a consumer warp group runs wgmma on it.

Full and empty mbarriers, setmaxnreg, proxy fences by the writers, one wgmma group kept in flight. The faults drop one
piece of the protocol each.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.run import run_ptx

from .programs import SMEM, frame
from .test_ptx_mma import descriptor, unpack

N, STAGES = 64, 2
A_BYTES, STAGE = 64 * 128, 64 * 128 + N * 128
ACC = "{" + ", ".join(f"r{100 + i}" for i in range(N // 2)) + "}"


def text() -> str:
    """C[64, 64] = A[64, K] @ B[64, K]^T in bf16; grid x tiles of 64 rows of A; N0: K / 64. d0 A, d1 B, d2 C.

    A stage holds 128 rows, 64 of A and then 64 of B: d15 is B's pointer moved back by 64 rows of K.
    """
    steps = "".join(
        f"""
        add.u64 d10, d8, {2 * k}; add.u64 d11, d9, {2 * k}; setp.ne.u32 p3, r20, 0; {"mov.pred p3, 1;" if k else ""}
        wgmma.mma_async.sync.aligned.m64n{N}k16.f32.bf16.bf16 {ACC}, d10, d11, p3, 1, 1, 0, 0;"""
        for k in range(4)
    )
    store = "".join(f"st.global.b32 [d13+{4 * i}], r{100 + i};\n" for i in range(N // 2))
    copies = "".join(
        f"""
        add.u32 r31, r30, {8 * row}; shl.b32 r32, r31, 7; and.b32 r33, r31, 7; xor.b32 r33, r33, r29; shl.b32 r33, r33, 4;
        add.u32 r34, r32, r33; add.u32 r34, r34, r26; mad.lo.u32 r35, r31, r8, r27; mad.wide.u32 d14, r35, 2, {"d0" if row < 8 else "d15"};
        cp.async.cg.shared.global [r34], [d14], 16;"""
        for row in range(16)
    )
    body = f"""
    mov.u32 r1, smem; ld.param.u32 r7, [N0]; shl.b32 r8, r7, 6; shr.u32 r2, r0, 7; and.b32 r3, r0, 127;
    mov.u32 r9, %ctaid.x; mul.lo.u32 r10, r9, r8; mad.wide.u32 d0, r10, 128, d0;
    add.u32 r4, r1, {STAGES * STAGE};
    setp.ne.u32 p1, r0, 0; @p1 bra READY;
    mbarrier.init.shared::cta.b64 [r4], 128; mbarrier.init.shared::cta.b64 [r4+8], 128;
    mbarrier.init.shared::cta.b64 [r4+16], 1; mbarrier.init.shared::cta.b64 [r4+24], 1;
READY:
    bar.sync 0;
    mul.wide.u32 d15, r8, 128; sub.s64 d15, d1, d15;
    mov.u32 r20, 0; mov.u32 r21, 0; mov.u32 r22, 0;
    setp.ne.u32 p2, r2, 0; @p2 bra PRODUCER;
    setmaxnreg.inc.sync.aligned.u32 240;
    wgmma.fence.sync.aligned;
CONSUME:
    mad.lo.u32 r23, r21, 8, r4;
WF: mbarrier.try_wait.parity.shared::cta.b64 p4, [r23], r22; @!p4 bra WF;
    mad.lo.u32 r24, r21, {STAGE}, r1; shr.u32 r25, r24, 4; cvt.u64.u32 d8, r25; or.b64 d8, d8, {descriptor(1, 16, 1024)};
    add.u64 d9, d8, {A_BYTES // 16};
    {steps}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    setp.eq.u32 p5, r3, 0; bar.sync 1, 128; @p5 mbarrier.arrive.shared::cta.b64 _, [r23+16];
    add.u32 r20, r20, 1; add.u32 r21, r21, 1; setp.eq.u32 p6, r21, {STAGES}; selp.u32 r21, 0, r21, p6; @p6 xor.b32 r22, r22, 1;
    setp.lt.u32 p7, r20, r7; @p7 bra CONSUME;
    mad.lo.u32 r36, r9, 128, r3; mad.wide.u32 d13, r36, {4 * N // 2}, d2;
    {store}
    bra OUT;
PRODUCER:
    setmaxnreg.dec.sync.aligned.u32 40;
    mov.u32 r22, 1; and.b32 r29, r3, 7; shr.u32 r30, r3, 3; and.b32 r30, r30, 7; shr.u32 r38, r3, 6;
PRODUCE:
    mad.lo.u32 r23, r21, 8, r4;
WE: mbarrier.try_wait.parity.shared::cta.b64 p4, [r23+16], r22; @!p4 bra WE;
    mad.lo.u32 r26, r21, {STAGE}, r1; shl.b32 r27, r20, 6; mad.lo.u32 r27, r29, 8, r27;
    setp.ne.u32 p8, r38, 0; @p8 bra SKIP;
    {copies}
SKIP:
    cp.async.commit_group; cp.async.wait_group 0;
    fence.proxy.async.shared::cta;
    mbarrier.arrive.shared::cta.b64 _, [r23];
    add.u32 r20, r20, 1; add.u32 r21, r21, 1; setp.eq.u32 p6, r21, {STAGES}; selp.u32 r21, 0, r21, p6; @p6 xor.b32 r22, r22, 1;
    setp.lt.u32 p7, r20, r7; @p7 bra PRODUCE;
OUT:
    """
    return frame(body, 3, 256, SMEM, scalars="N0")


def arguments(tiles: int, k: int) -> tuple[list[object], np.ndarray]:
    rng = np.random.default_rng(3)
    a = rng.standard_normal((64 * tiles, k)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((N, k)).astype(ml_dtypes.bfloat16)
    out = np.zeros((tiles, 128, N // 2), np.uint32)
    return [a, b, out, k // 64], a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_warp_specialised_matmul(seed: int) -> None:
    args, want = arguments(2, 320)
    run_ptx(text(), "k", (2, 1, 1), args, shared_bytes=STAGES * STAGE + 32, seed=seed)  # type: ignore[arg-type]
    for tile in range(2):
        got = unpack(args[2][tile], N, np.float32)  # type: ignore[index]
        assert np.allclose(got, want[64 * tile : 64 * tile + 64], rtol=1e-5, atol=1e-3)


def test_an_elected_arrive_after_the_wait_needs_no_barrier() -> None:
    """wgmma's own reads end at the wait of any warp of the group, so that one thread may release the stage alone."""
    args, _ = arguments(1, 320)
    source = text().replace("bar.sync 1, 128; ", "")
    run_ptx(source, "k", (1, 1, 1), args, shared_bytes=STAGES * STAGE + 32)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fence.proxy.async.shared::cta;", "", r"fence\.proxy\.async"),
        ("cp.async.wait_group 0;", "", r"cp\.async of warp"),
        ("cp.async.wait_group 0;", "cp.async.wait_group 1;", r"cp\.async of warp"),
        ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", r"wgmma of warp group 0|in flight"),
        ("@p5 mbarrier.arrive.shared::cta.b64 _, [r23+16];", "", "deadlock"),
        ("mov.u32 r22, 1; and", "mov.u32 r22, 0; and", "deadlock"),
        ("[r4+8], 128;", "[r4+8], 129;", "deadlock"),
    ],
)  # fmt: skip
def test_dropped_pieces_of_the_protocol(old: str, new: str, message: str) -> None:
    source = text()
    assert old in source
    args, _ = arguments(1, 320)
    with pytest.raises(SimulationError, match=message):
        run_ptx(source.replace(old, new), "k", (1, 1, 1), args, shared_bytes=STAGES * STAGE + 32)  # type: ignore[arg-type]
