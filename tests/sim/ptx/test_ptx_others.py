"""What other compilers' texts do and ours do not: found by running them, kept here as texts of our own."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.run import run_ptx
from mimw.sim.ptx.tensor_map import encode

from .mimw_programs import LOAD, kernel
from .programs import SMEM, frame


def test_one_lane_polls_for_its_warp_while_others_hold_the_lock() -> None:
    """CTAs take turns: a lane polls, its warp waits for it, and the CTA whose turn it is gets on."""
    text = frame(
        """
    mov.u32 r1, %ctaid.x; mov.u32 r2, smem; setp.eq.u32 p1, r0, 0;
POLL:
    bar.sync 0;
    @p1 atom.global.acq_rel.gpu.cas.b32 r3, [d0], r1, -1;
    @p1 st.shared.u32 [r2], r3;
    bar.sync 0;
    ld.shared.u32 r4, [r2];
    setp.ne.u32 p2, r4, r1; @p2 bra POLL;
    ld.global.u32 r5, [d1]; mad.lo.u32 r5, r5, 2, r1;
    bar.sync 0;
    @p1 st.global.u32 [d1], r5;
    bar.sync 0;
    add.u32 r6, r1, 1;
    @p1 atom.global.acq_rel.gpu.exch.b32 r7, [d0], r6;""",
        pointers=2, threads=64, module=SMEM,
    )  # fmt: skip
    lock, total = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    run_ptx(text, "k", (5, 1, 1), [lock, total], shared_bytes=16, max_steps=20_000)
    assert lock[0] == 5
    assert total[0] == (((0 * 2 + 1) * 2 + 2) * 2 + 3) * 2 + 4


STORES = """
    mov.u32 r2, smem; and.b32 r3, r0, 31; mad.lo.u32 r4, r3, 4, r2; shr.u32 r6, r0, 5;
    st.shared.u32 [r4], {value};
    {more}
    bar.sync 0;
    ld.shared.u32 r5, [r4]; mad.wide.u32 d1, r0, 4, d0; st.global.u32 [d1], r5;"""


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_warps_that_store_the_same_bytes_do_not_race(seed: int) -> None:
    out = np.zeros(64, np.uint32)
    run_ptx(
        frame(STORES.format(value="r3", more=""), threads=64, module=SMEM),
        "k",
        (1, 1, 1),
        [out],
        shared_bytes=128,
        seed=seed,
    )
    assert (out == np.arange(64) % 32).all()


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_warps_that_store_other_bytes_race(seed: int) -> None:
    text = frame(STORES.format(value="r6", more=""), threads=64, module=SMEM)
    with pytest.raises(SimulationError, match="race: this write"):
        run_ptx(text, "k", (1, 1, 1), [np.zeros(64, np.uint32)], shared_bytes=128, seed=seed)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_store_of_the_same_bytes_after_a_read_is_a_race(seed: int) -> None:
    more = "bar.sync 0; ld.shared.u32 r7, [r4]; st.shared.u32 [r4], r3;"
    text = frame(STORES.format(value="r3", more=more), threads=64, module=SMEM)
    with pytest.raises(SimulationError, match="race: this write"):
        run_ptx(text, "k", (1, 1, 1), [np.zeros(64, np.uint32)], shared_bytes=128, seed=seed)


REDUCED = """
    setp.lt.u32 p1, r0, 4; mad.wide.u32 d1, r0, 4, d0;
    @p1 ld.global.u32 r1, [d1];
    shfl.sync.bfly.b32 r2, r1, 2, 31, -1; add.u32 r1, r1, r2;
    shfl.sync.bfly.b32 r2, r1, 1, 31, -1; add.u32 r1, r1, r2;
    setp.eq.u32 p2, r0, 0; @p2 st.global.u32 [d0], r1;"""


def test_registers_that_were_never_written_hold_anything_where_the_isa_leaves_it_open() -> None:
    with pytest.raises(SimulationError, match="r1 is read before it is written"):
        run_ptx(frame(REDUCED), "k", (1, 1, 1), [np.zeros(4, np.uint32)])
    for seed in range(4):
        x = np.array([1, 20, 300, 4000], np.uint32)
        run_ptx(frame(REDUCED), "k", (1, 1, 1), [x], strict=False, seed=seed)
        assert x[0] == 4321


def test_a_result_that_hangs_on_unwritten_registers_differs_from_run_to_run() -> None:
    seen: set[int] = set()
    for seed in range(4):
        x = np.zeros(4, np.uint32)
        run_ptx(frame("st.global.u32 [d0], r9;"), "k", (1, 1, 1), [x], strict=False, seed=seed)
        seen.add(int(x[0]))
    assert len(seen) > 1


PARITY = """
    mov.u32 r2, smem; setp.eq.u32 p1, r0, 0;
    @p1 mbarrier.init.shared::cta.b64 [r2], 64;
    bar.sync 0;
    mbarrier.arrive.shared::cta.b64 _, [r2];
    WAIT: mbarrier.try_wait.parity.shared::cta.b64 p2, [r2], 0; @!p2 bra WAIT;
    mbarrier.arrive.shared::cta.b64 _, [r2];
    AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p2, [r2], {parity}; @!p2 bra AGAIN;
    @p1 st.global.u32 [d0], 7;"""


@pytest.mark.parametrize("parity", [-1, 1, 3])
def test_of_a_parity_the_low_bit_counts_on_devices(parity: int) -> None:
    text, out = frame(PARITY.format(parity=parity), threads=64, module=SMEM), np.zeros(1, np.uint32)
    run_ptx(text, "k", (1, 1, 1), [out], shared_bytes=16, strict=False)
    assert out[0] == 7
    if parity != 1:
        with pytest.raises(SimulationError, match="mbarrier parity"):
            run_ptx(text, "k", (1, 1, 1), [out], shared_bytes=16)


def overwriting(late: str) -> str:
    """A copy lands on the mbarrier at the base of shared memory, which was initialised and not used; `late` uses it afterwards."""
    return kernel(
        f"""
    setp.eq.u32 p1, r0, 0; @!p1 bra JOIN;
    mbarrier.init.shared::cta.b64 [r1], 1; mbarrier.init.shared::cta.b64 [r1+2048], 1; fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [r1+2048], 128;
    {LOAD.format(rank=1)} [r1], [d50, {{0}}], [r1+2048];
JOIN:
    bar.sync 0;
    WAIT: mbarrier.try_wait.parity.shared::cta.b64 p2, [r1+2048], 0; @!p2 bra WAIT;
    {late}
    mad.lo.u32 r10, r0, 4, r1; ld.shared.u32 r11, [r10]; mad.wide.u32 d10, r0, 4, d0; st.global.u32 [d10], r11;""",
        maps=1, pointers=1,
    )  # fmt: skip


def test_a_copy_may_end_an_mbarrier_that_nobody_has_used() -> None:
    x, out = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    args = [encode(x, "u32", [32], [], [32]), out]
    run_ptx(overwriting(""), "k", (1, 1, 1), args, shared_bytes=4096, strict=False)  # type: ignore[arg-type]
    assert (out == x).all()
    with pytest.raises(SimulationError, match="writes over the mbarrier at 0x400"):
        run_ptx(overwriting(""), "k", (1, 1, 1), args, shared_bytes=4096)  # type: ignore[arg-type]
    late = "@p1 mbarrier.arrive.shared::cta.b64 _, [r1];"
    with pytest.raises(SimulationError, match="the mbarrier at 0x400 was overwritten by a copy"):
        run_ptx(overwriting(late), "k", (1, 1, 1), args, shared_bytes=4096, strict=False)  # type: ignore[arg-type]
