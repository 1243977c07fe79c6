"""Parities repeat: a phase may end only after all who waited for the one before have seen that one's end."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.run import run_ptx

from .programs import SMEM, frame


def turns(sync: str, warps: int = 2, waits: str = "") -> str:
    """Warps 0.. wait at A and one thread of theirs answers at B; the last warp's first thread waits at B and arrives at A. Four turns."""
    last = 32 * warps
    return frame(
        f"""
    mov.u32 r1, smem; mov.u32 r5, 0; mov.u32 r6, 0; setp.eq.u32 p1, r0, 0; setp.ge.u32 p2, r0, {last}; setp.eq.u32 p3, r0, {last};
    @p1 mbarrier.init.shared::cta.b64 [r1], 1; @p1 mbarrier.init.shared::cta.b64 [r1+8], 1;
    bar.sync 0;
    @p2 bra OTHER;
TASK:
    mov.pred p4, 1; {waits} mbarrier.try_wait.parity.shared::cta.b64 p4, [r1], r6; @!p4 bra TASK;
    {sync}
    @p1 mbarrier.arrive.shared::cta.b64 _, [r1+8];
    add.u32 r5, r5, 1; xor.b32 r6, r6, 1; setp.lt.u32 p5, r5, 4; @p5 bra TASK;
    bra OUT;
OTHER:
    @!p3 bra OUT;
    mbarrier.arrive.shared::cta.b64 _, [r1];
AGAIN:
    mbarrier.try_wait.parity.shared::cta.b64 p4, [r1+8], r6; @!p4 bra AGAIN;
    add.u32 r5, r5, 1; xor.b32 r6, r6, 1; setp.lt.u32 p5, r5, 4;
    @p5 mbarrier.arrive.shared::cta.b64 _, [r1]; @p5 bra AGAIN;
OUT:""",
        pointers=0, threads=last + 32, module=SMEM,
    )  # fmt: skip


def run(text: str, seed: int = 0) -> None:
    run_ptx(text, "k", (1, 1, 1), [], shared_bytes=16, seed=seed)


@pytest.mark.parametrize("seed", range(6))
def test_a_sync_of_all_waiters_before_the_arrive(seed: int) -> None:
    run(turns("bar.sync 1, 64;"), seed)
    run(turns("", warps=1), seed)  # a warp leaves its waits together


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("warps", "sync"), [(2, ""), (2, "bar.warp.sync -1;"), (3, "bar.warp.sync -1;")])
def test_waiters_that_may_lag_behind(warps: int, sync: str, seed: int) -> None:
    with pytest.raises(SimulationError, match=r"may still wait for the one before|deadlock"):
        run(turns(sync, warps), seed)


def test_a_thread_that_waits_alone_may_arrive_alone() -> None:
    run(turns("", waits="@p1"))


def test_the_message() -> None:
    with pytest.raises(
        SimulationError, match=r"a phase of the mbarrier at 0x400 ends while cta \(0,0,0\) warp [01] may still wait"
    ) as found:
        run(turns(""))
    assert "mbarrier.arrive" in str(found.value)


COPIES = """
    mov.u32 r1, smem; setp.eq.u32 p1, r0, 0; mov.u32 r5, 0; mov.u32 r6, 0;
    @p1 mbarrier.init.shared::cta.b64 [r1+1024], 1; @p1 fence.proxy.async.shared::cta;
    bar.sync 0;
NEXT:
    @p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [r1+1024], 256;
    {sync}
    @p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d0], 256, [r1+1024];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 p2, [r1+1024], r6; @!p2 bra WAIT;
    mad.lo.u32 r7, r0, 4, r1; ld.shared.u32 r8, [r7];
    {last}
    add.u32 r5, r5, 1; xor.b32 r6, r6, 1; setp.lt.u32 p3, r5, 3; @p3 bra NEXT;"""


def test_a_copy_that_starts_after_a_sync_ends_its_phase_after_it() -> None:
    """One thread announces bytes before the others have met it; the phase ends with the copy, which starts after they have."""
    x = np.arange(64, dtype=np.uint32)
    both, text = "bar.sync 0;", frame(COPIES.format(sync="bar.sync 0;", last=""), threads=64, module=SMEM)
    run_ptx(text, "k", (1, 1, 1), [x], shared_bytes=2048)
    run_ptx(frame(COPIES.format(sync="", last=both), threads=64, module=SMEM), "k", (1, 1, 1), [x], shared_bytes=2048)
    with pytest.raises(SimulationError, match=r"race|may still wait"):
        run_ptx(frame(COPIES.format(sync="", last=""), threads=64, module=SMEM), "k", (1, 1, 1), [x], shared_bytes=2048)
