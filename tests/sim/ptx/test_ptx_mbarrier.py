"""mbarrier in all its forms, transaction counts, register pools, and what a deadlock says."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.sim.ptx.errors import SimulationError

from .mimw_programs import kernel, run

INIT = "setp.ne.u32 p1, r0, 0; @p1 bra READY; mbarrier.init.shared::cta.b64 [r1], {count}; READY: bar.sync 0;"


def wait(label: str, parity: str, at: str = "r1") -> str:
    return f"{label}: mbarrier.try_wait.parity.shared::cta.b64 p9, [{at}], {parity}; @!p9 bra {label};"


def test_state_pending_count_and_no_complete() -> None:
    out = np.zeros(32, np.uint32)
    body = (
        INIT.format(count=32)
        + """
    setp.ne.u32 p2, r0, 0; @p2 bra REST;
    mbarrier.arrive.noComplete.shared::cta.b64 d10, [r1], 3; mbarrier.pending_count.b64 r10, d10;
    mbarrier.arrive.shared::cta.b64 d11, [r1], 2; mbarrier.pending_count.b64 r11, d11;
    st.global.u32 [d0], r10; st.global.u32 [d0+4], r11;
    mbarrier.test_wait.shared::cta.b64 p3, [r1], d11; selp.u32 r12, 1, 0, p3; st.global.u32 [d0+8], r12;
    mbarrier.arrive.shared::cta.b64 d12, [r1], 27;
    mbarrier.test_wait.shared::cta.b64 p3, [r1], d11; selp.u32 r12, 1, 0, p3; st.global.u32 [d0+12], r12;
    W: mbarrier.try_wait.shared::cta.b64 p4, [r1], d12; @!p4 bra W;
    mbarrier.arrive_drop.shared::cta.b64 _, [r1]; mbarrier.arrive.shared::cta.b64 _, [r1], 31;
    mbarrier.arrive.shared::cta.b64 d13, [r1], 31; mbarrier.pending_count.b64 r13, d13; st.global.u32 [d0+16], r13;
    mbarrier.inval.shared::cta.b64 [r1]; mbarrier.init.shared::cta.b64 [r1], 1; mbarrier.arrive.shared::cta.b64 d14, [r1];
    mbarrier.pending_count.b64 r14, d14; st.global.u32 [d0+20], r14;
    REST:
    """
    )
    run(kernel(body, pointers=1), out)
    assert out[:6].tolist() == [32, 29, 0, 1, 31, 1]


def test_no_complete_must_not_complete() -> None:
    body = INIT.format(count=4) + "@p1 bra END; mbarrier.arrive.noComplete.shared::cta.b64 d10, [r1], 4; END:"
    with pytest.raises(SimulationError, match="noComplete would complete"):
        run(kernel(body))


def test_transactions_hold_the_phase_open() -> None:
    out = np.zeros(1, np.uint32)
    body = (
        INIT.format(count=1)
        + f"""
    @p1 bra END;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [r1], 96; mbarrier.complete_tx.shared::cta.b64 [r1], 32;
    mbarrier.test_wait.parity.shared::cta.b64 p3, [r1], 0; selp.u32 r12, 1, 0, p3;
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [r1], 16; mbarrier.complete_tx.shared::cta.b64 [r1], 80;
    {wait("W", "0")} add.u32 r12, r12, 2; st.global.u32 [d0], r12;
    END:
    """
    )
    run(kernel(body, pointers=1), out)
    assert out[0] == 2


def test_bytes_are_counted_in_20_bits() -> None:
    body = INIT.format(count=2) + "@p1 bra END; mbarrier.arrive.expect_tx.shared::cta.b64 _, [r1], 1048576; END:"
    with pytest.raises(SimulationError, match="at most 1048575 may be outstanding"):
        run(kernel(body))


def test_deadlock_says_who_waits_for_what() -> None:
    body = INIT.format(count=3) + f"""
    setp.eq.u32 p2, r3, 0; @p2 bra FIRST;
    bar.sync 1, 96; bra END;
    FIRST: mbarrier.arrive.expect_tx.shared::cta.b64 _, [r1+0], 5; {wait("W", "0")}
    END:
    """.replace("mbarrier.arrive.expect_tx", "@!p1 mbarrier.arrive.expect_tx")  # fmt: skip
    with pytest.raises(SimulationError, match="deadlock") as caught:
        run(kernel(body, threads=64))
    text = str(caught.value)
    assert "warp 0 waits for parity 0 of the mbarrier at 0x400 (phase 0: 2 arrivals and 5 bytes are missing)" in text
    assert "warp 1 waits at barrier 1 (count 96): 32 threads have come, at `bar.sync 1, 96;`" in text


def test_more_bytes_than_expected() -> None:
    body = (
        INIT.format(count=1)
        + f"""
    @!p1 mbarrier.complete_tx.shared::cta.b64 [r1], 48; @!p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [r1], 32;
    {wait("W", "0")}
    """
    )
    with pytest.raises(SimulationError, match="16 bytes more than expected have arrived"):
        run(kernel(body))


def test_bytes_may_come_before_they_are_expected() -> None:
    body = (
        INIT.format(count=1)
        + f"""
    @!p1 mbarrier.complete_tx.shared::cta.b64 [r1], 32; @!p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [r1], 32;
    {wait("W", "0")}
    """
    )
    run(kernel(body))


def test_relaxed_arrivals_order_nothing() -> None:
    """Warp 1 reads what warp 0 wrote: the arrival must release."""
    body = (
        INIT.format(count=32)
        + f"""
    setp.ne.u32 p2, r3, 0; @p2 bra SECOND;
    st.shared.u32 [r1+64], r0; mbarrier.arrive{{}}.shared::cta.b64 _, [r1]; bra END;
    SECOND: {wait("W", "0")} ld.shared.u32 r10, [r1+64];
    END:
    """
    )
    run(kernel(body.format(""), threads=64))
    with pytest.raises(SimulationError, match="race"):
        run(kernel(body.format(".relaxed.cta"), threads=64))


def test_an_elected_arrive_speaks_for_its_own_lane() -> None:
    """All lanes write, lane 0 arrives: bar.warp.sync must stand between."""
    body = (
        INIT.format(count=1)
        + f"""
    mad.lo.u32 r10, r0, 4, r1; setp.ne.u32 p2, r3, 0; @p2 bra SECOND;
    st.shared.u32 [r10+64], r0; bar.warp.sync -1; @!p1 mbarrier.arrive.shared::cta.b64 _, [r1]; bra END;
    SECOND: {wait("W", "0")} ld.shared.u32 r11, [r10+-64];
    END:
    """
    )
    run(kernel(body, threads=64))
    with pytest.raises(SimulationError, match="race"):
        run(kernel(body.replace("bar.warp.sync -1;", ""), threads=64))


def test_an_elected_arrive_releases_reads_of_its_own_lane() -> None:
    body = (
        INIT.format(count=1)
        + f"""
    mad.lo.u32 r10, r0, 4, r1; setp.ne.u32 p2, r3, 0; @p2 bra SECOND;
    ld.shared.u32 r11, [r10+64]; SYNC @!p1 mbarrier.arrive.shared::cta.b64 _, [r1]; bra END;
    SECOND: {wait("W", "0")} st.shared.u32 [r10+-64], r0;
    END:
    """
    )
    run(kernel(body.replace("SYNC", "bar.warp.sync -1;"), threads=64))
    with pytest.raises(SimulationError, match="race"):
        run(kernel(body.replace("SYNC", ""), threads=64))
    run(kernel(body.replace("SYNC", "").replace("ld.shared", "@!p1 ld.shared").replace("SECOND: ", "SECOND: setp.ne.u32 p5, r0, 32;")
               .replace("st.shared", "@!p5 st.shared"), threads=64))  # fmt: skip


POOL = """
setp.ne.u32 p1, r3, 0; setp.lt.u32 p2, r0, 128; @p2 bra DOWN;
setmaxnreg.inc.sync.aligned.u32 {inc}; bra END;
DOWN: setmaxnreg.dec.sync.aligned.u32 {dec};
END:
"""


def test_setmaxnreg_takes_from_the_pool() -> None:
    extra = ".minnctapersm 1"
    for seed in (0, 1):
        run(kernel(POOL.format(inc=240, dec=24), threads=384, extra=extra), seed=seed)
    with pytest.raises(SimulationError, match=r"waits for 80 more registers a thread of the CTA's pool"):
        run(kernel(POOL.format(inc=248, dec=24), threads=384, extra=extra))
    with pytest.raises(SimulationError, match=r"setmaxnreg\.inc 160 in a warp that has 168 registers"):
        run(kernel(POOL.format(inc=160, dec=24), threads=384, extra=extra))
    with pytest.raises(SimulationError, match="multiple of 8"):
        run(kernel(POOL.format(inc=240, dec=25), threads=384, extra=extra))


def test_initialising_an_mbarrier_that_others_wait_at() -> None:
    body = (
        INIT.format(count=1)
        + f"""
    setp.ne.u32 p2, r3, 0; @p2 bra SECOND;
    {wait("W", "0")} bra END;
    SECOND: setp.ne.u32 p4, r0, 32; @!p4 mbarrier.init.shared::cta.b64 [r1], 1;
    END:
    """
    )
    with pytest.raises(SimulationError, match="initialised again while"):
        run(kernel(body, threads=64))
