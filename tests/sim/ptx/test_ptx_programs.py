"""Small hand-written programs: control flow, memory, warp operations, barriers; each fault has a program that commits it."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.run import run_ptx

from .programs import SMEM, frame

VECTOR_ADD = frame(
    """
    mov.u32 r1, %ctaid.x; mad.lo.s32 r2, r1, 64, r0;
    ld.param.u32 r3, [N];
    setp.ge.s32 p1, r2, r3;
    @p1 bra DONE;
    mad.wide.s32 d4, r2, 4, d0; ld.global.f32 f0, [d4];
    mad.wide.s32 d5, r2, 4, d1; ld.global.nc.L1::no_allocate.f32 f1, [d5];
    add.f32 f2, f0, f1;
    mad.wide.s32 d6, r2, 4, d2; st.global.f32 [d6], f2;
DONE:
    """,
    3, 64, scalars="N",
)  # fmt: skip


def run(text: str, *args: object, grid: int = 1, shared: int = 0, seed: int = 0, **options: object) -> None:
    run_ptx(text, "k", (grid, 1, 1), list(args), shared_bytes=shared, seed=seed, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1, 63, 64, 1000])
def test_vector_add_with_tail(n: int) -> None:
    rng = np.random.default_rng(0)
    x, y, z = rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32), np.zeros(n, np.float32)
    run(VECTOR_ADD, x, y, z, n, grid=-(-n // 64))
    assert (z == x + y).all()


def test_out_of_bounds_names_instruction_thread_and_address() -> None:
    x, y, z = (np.zeros(100, np.float32) for _ in range(3))
    with pytest.raises(SimulationError) as caught:
        run(VECTOR_ADD, x, y, z, 128, grid=2)
    assert "outside every allocation" in str(caught.value)
    assert "cta (1,0,0) warp 1 lane 4" in str(caught.value)
    assert "ld.global.f32 f0, [d4]" in str(caught.value)


def test_source_lines_are_named() -> None:
    text = VECTOR_ADD.replace(".visible", '.file 1 "kernel.py"\n.visible').replace(
        "mad.wide.s32 d4", ".loc 1 42 7\nmad.wide.s32 d4"
    )
    with pytest.raises(SimulationError, match=r"kernel\.py:42:7"):
        run(text, *(np.zeros(10, np.float32) for _ in range(3)), 64)


def test_views_of_one_buffer_share_memory() -> None:
    buffer = np.arange(300, dtype=np.float32)
    want = buffer[:100] + buffer[100:200]
    run(VECTOR_ADD, buffer[:100], (buffer, 400), buffer[200:], 100, grid=2)
    assert (buffer[200:] == want).all()
    run(VECTOR_ADD, buffer[:100], buffer[100:200], buffer[0:100], 100, grid=2)
    assert (buffer[:100] == want).all()


def test_strided_and_empty_arrays() -> None:
    wide = np.arange(400, dtype=np.float32).reshape(4, 100)
    rows = wide[1:3, 10:60]
    out = np.zeros(50, np.float32)
    run(VECTOR_ADD, rows, rows[1:], out, 50)
    assert (out == rows[0] + rows[1]).all()
    backward = np.arange(64, dtype=np.float32)[::-1]
    run(VECTOR_ADD, backward, backward, out[:1], 1)
    assert out[0] == 126
    with pytest.raises(SimulationError, match="outside every allocation"):
        run(VECTOR_ADD, np.zeros(0, np.float32), rows, out, 1)


def test_read_only_array() -> None:
    z = np.zeros(64, np.float32)
    z.flags.writeable = False
    with pytest.raises(SimulationError, match="read-only"):
        run(VECTOR_ADD, np.zeros(64, np.float32), np.zeros(64, np.float32), z, 64)


def test_uninitialised_register() -> None:
    with pytest.raises(SimulationError, match=r"r5 is read before it is written"):
        run(frame("add.s32 r1, r5, 1;"), np.zeros(1))
    partly = "setp.lt.u32 p1, r0, 7; @p1 mov.u32 r5, 1; add.s32 r1, r5, 1;"
    with pytest.raises(SimulationError, match="lane 7"):
        run(frame(partly), np.zeros(1))
    run(frame(partly.replace("add.s32", "@p1 add.s32")), np.zeros(1))


def test_misaligned_vector() -> None:
    body = "ld.global.v4.f32 {{f0, f1, f2, f3}}, [d0+{}];"
    run(frame(body.format(16)), np.zeros(16, np.float32))
    with pytest.raises(SimulationError, match="misaligned global access of 16 bytes"):
        run(frame(body.format(8)), np.zeros(16, np.float32))


def test_vector_and_narrow_accesses() -> None:
    src = np.arange(256, dtype=np.uint8)
    out = np.zeros(32 * 4, np.int32)
    body = """
    mad.wide.u32 d2, r0, 8, d0; mad.wide.u32 d3, r0, 16, d1;
    ld.global.v4.s8 {r1, r2, r3, r4}, [d2]; ld.global.v2.u16 {h1, h2}, [d2+4];
    cvt.u32.u16 r3, h1; mov.b32 r4, {h1, h2};
    st.global.v4.u32 [d3], {r1, r2, r3, r4};
    """
    run(frame(body, 2), src, out)
    want = src.reshape(32, 8)
    got = out.reshape(32, 4)
    assert (got[:, :2] == want[:, :2].view(np.int8)).all()
    assert (got[:, 2] == want[:, 4:6].copy().view(np.uint16)[:, 0]).all()
    assert (got[:, 3] == want[:, 4:8].copy().view(np.int32)[:, 0]).all()


def test_loop_with_different_trip_counts_and_break() -> None:
    out = np.zeros(64, np.uint32)
    body = """
    mov.u32 r1, 0; mov.u32 r2, 0;
LOOP:
    setp.ge.u32 p1, r1, r0; @p1 bra OUT;
    setp.eq.u32 p2, r1, 20; @p2 bra OUT;
    and.b32 r3, r1, 1; setp.eq.u32 p3, r3, 0;
    add.u32 r1, r1, 1;
    @p3 bra LOOP;
    add.u32 r2, r2, r1;
    bra.uni LOOP;
OUT:
    mad.wide.u32 d1, r0, 4, d0; st.global.u32 [d1], r2;
    """
    run(frame(body, 1, 64), out)
    assert out.tolist() == [sum(i + 1 for i in range(min(n, 20)) if i % 2) for n in range(64)]


def test_branch_table() -> None:
    out = np.zeros(32, np.uint32)
    body = """
    and.b32 r1, r0, 3;
    T: .branchtargets A, B, C, D;
    brx.idx r1, T;
A: mov.u32 r2, 10; bra E;
B: mov.u32 r2, 11; bra E;
C: mov.u32 r2, 12; bra E;
D: mov.u32 r2, 13;
E: mad.wide.u32 d1, r0, 4, d0; st.global.u32 [d1], r2;
    """
    run(frame(body), out)
    assert out.tolist() == [10 + i % 4 for i in range(32)]


def test_local_memory_and_generic_addresses() -> None:
    out = np.zeros(32, np.uint32)
    body = """
    .local .align 8 .b8 depot[32];
    mov.u64 d1, depot; cvta.local.u64 d2, d1;
    and.b32 r1, r0, 7; mad.wide.u32 d3, r1, 4, d2; st.u32 [d3], r0;
    mad.wide.u32 d4, r1, 4, d1; ld.local.u32 r2, [d4];
    mad.wide.u32 d5, r0, 4, d0; st.u32 [d5], r2;
    """
    run(frame(body), out)
    assert out.tolist() == list(range(32))
    with pytest.raises(SimulationError, match="local store"):
        run(frame(body.replace("and.b32 r1, r0, 7", "mov.u32 r1, 8")), out)


def test_constants_and_global_variables() -> None:
    out = np.zeros(32, np.float32)
    module = ".const .align 4 .f32 table[4] = {0f3F800000, 0f40000000, 0f40400000, 0f40800000};\n.global .align 4 .u32 counter = 5;"
    body = """
    and.b32 r1, r0, 3; mov.u64 d1, table; mad.wide.u32 d2, r1, 4, d1; ld.const.f32 f0, [d2];
    ld.global.u32 r2, [counter]; cvt.rn.f32.u32 f1, r2; mul.f32 f2, f0, f1;
    mad.wide.u32 d3, r0, 4, d0; st.global.f32 [d3], f2;
    """
    run(frame(body, module=module), out)
    assert out.tolist() == [5.0 * (1 + i % 4) for i in range(32)]


# -- warp operations ----------------------------------------------------------------------------------------------


def warp_result(body: str, dtype: object = np.uint32, result: str = "r10") -> np.ndarray:
    out = np.zeros(32, dtype)  # type: ignore[call-overload]
    run(frame(f"{body}\nmad.wide.u32 d1, r0, 4, d0; st.global.b32 [d1], {result};"), out)
    return out


def test_shuffle_modes() -> None:
    lanes = np.arange(32)
    assert (warp_result("shfl.sync.bfly.b32 r10, r0, 5, 31, -1;") == lanes ^ 5).all()
    assert (warp_result("shfl.sync.up.b32 r10, r0, 3, 0, -1;") == np.where(lanes >= 3, lanes - 3, lanes)).all()
    assert (warp_result("shfl.sync.down.b32 r10, r0, 3, 31, -1;") == np.where(lanes + 3 < 32, lanes + 3, lanes)).all()
    assert (warp_result("shfl.sync.idx.b32 r10, r0, 9, 31, -1;") == 9).all()
    # Segments of 8 lanes: c = (32 - 8) << 8 | 7.
    seg = (24 << 8) | 31
    assert (warp_result(f"shfl.sync.idx.b32 r10, r0, 2, {seg}, -1;") == lanes // 8 * 8 + 2).all()
    got = warp_result(f"shfl.sync.down.b32 r9|p1, r0, 3, {seg}, -1; selp.b32 r10, r9, 99, p1;")
    assert (got == np.where(lanes % 8 + 3 < 8, lanes + 3, 99)).all()


def test_reduction_by_shuffles() -> None:
    body = "cvt.rn.f32.u32 f0, r0;" + "".join(
        f"mov.b32 r1, f0; shfl.sync.bfly.b32 r2, r1, {o}, 31, -1; mov.b32 f1, r2; add.f32 f0, f0, f1;"
        for o in (16, 8, 4, 2, 1)
    )
    assert (warp_result(body, np.float32, "f0") == 496).all()


def test_votes_match_redux_elect() -> None:
    lanes = np.arange(32)
    odd = "and.b32 r1, r0, 1; setp.eq.u32 p1, r1, 1;"
    assert (warp_result(odd + "vote.sync.ballot.b32 r10, p1, -1;") == 0xAAAAAAAA).all()
    assert (warp_result(odd + "vote.sync.any.pred p2, p1, -1; selp.b32 r10, 1, 0, p2;") == 1).all()
    assert (warp_result(odd + "vote.sync.all.pred p2, p1, -1; selp.b32 r10, 1, 0, p2;") == 0).all()
    assert (
        warp_result(odd + "activemask.b32 r10; @p1 activemask.b32 r10;") == np.where(lanes % 2, 0xAAAAAAAA, 2**32 - 1)
    ).all()
    assert (warp_result("shr.u32 r1, r0, 3; match.any.sync.b32 r10, r1, -1;") == (0xFF << lanes // 8 * 8)).all()
    assert (warp_result("redux.sync.add.u32 r10, r0, -1;") == 496).all()
    assert (warp_result("sub.s32 r1, 5, r0; redux.sync.min.s32 r10, r1, -1;").view(np.int32) == -26).all()
    assert (warp_result("elect.sync _|p1, -1; selp.b32 r10, 7, 0, p1;") == np.where(lanes == 0, 7, 0)).all()


def test_shuffle_waits_for_diverged_lanes_of_its_mask() -> None:
    """The merge point stands before one side of the branch, so that lanes come to the shuffle one after the other."""
    body = """
    setp.lt.u32 p1, r0, 16; mov.u32 r1, 1;
    @!p1 bra SIDE;
JOIN:
    shfl.sync.bfly.b32 r10, r1, 16, 31, -1;
    bra OUT;
SIDE:
    mov.u32 r1, 2;
    bra JOIN;
OUT:
    """
    assert (warp_result(body) == np.where(np.arange(32) < 16, 2, 1)).all()


def test_shuffle_that_can_never_converge() -> None:
    body = "setp.lt.u32 p1, r0, 16; @p1 bra A; shfl.sync.bfly.b32 r10, r0, 16, 31, -1; bra B;\nA: shfl.sync.bfly.b32 r10, r0, 16, 31, -1;\nB:"
    with pytest.raises(SimulationError, match="deadlock"):
        warp_result(body)


def test_shuffle_from_an_absent_lane() -> None:
    with pytest.raises(SimulationError, match="does not execute it"):
        warp_result("setp.lt.u32 p1, r0, 16; mov.u32 r10, 0; @p1 shfl.sync.bfly.b32 r10, r0, 16, 31, 65535;")


def test_spin_lock_inside_a_warp_makes_progress() -> None:
    lock, total = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    body = """
TRY:
    atom.global.cas.b32 r1, [d0], 0, 1; setp.ne.u32 p1, r1, 0; @p1 bra TRY;
    ld.volatile.global.u32 r2, [d1]; add.u32 r2, r2, r0; st.volatile.global.u32 [d1], r2;
    atom.global.exch.b32 r3, [d0], 0;
    """
    run(frame(body, 2, 64), lock, total)
    assert total[0] == 64 * 63 // 2


# -- atomics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "dtype", "want"),
    [
        ("add.u32", np.uint32, 2016), ("max.u32", np.uint32, 63), ("xor.b32", np.uint32, 0), ("or.b32", np.uint32, 63),
        ("inc.u32", np.uint32, None), ("add.f32", np.float32, 2016.0), ("min.s32", np.int32, 0), ("add.noftz.bf16x2", np.uint32, None),
    ],
)  # fmt: skip
def test_atomics_serialise_lanes(form: str, dtype: type, want: float | None) -> None:
    out = np.zeros(1, dtype)
    source = "cvt.rn.f32.u32 f1, r0; mov.b32 r1, f1;" if "f32" in form else "mov.u32 r1, r0;"
    if form == "inc.u32":
        source, want = "mov.u32 r1, 9;", 64 % 10
    if "bf16x2" in form:
        source, want = "mov.b32 r1, 0x3F803F80;", 0x42804280
    run(frame(f"{source} red.global.{form} [d0], {'f1' if form == 'add.f32' else 'r1'};", 1, 64), out)
    assert out[0] == want


def test_atomic_returns_each_value_once() -> None:
    counter, out = np.zeros(1, np.uint32), np.zeros(128, np.uint32)
    run(
        frame("atom.global.add.u32 r1, [d0], 1; mad.wide.u32 d2, r1, 4, d1; st.global.u32 [d2], r0;", 2, 128),
        counter,
        out,
    )
    assert counter[0] == 128
    assert sorted(out) == list(range(128))


# -- barriers and races -------------------------------------------------------------------------------------------

TRANSPOSE = frame(
    """
    mov.u32 r1, smem; shr.u32 r2, r0, 5; and.b32 r3, r0, 31;
    mad.wide.u32 d2, r0, 4, d0; ld.global.u32 r4, [d2];
    mad.lo.u32 r5, r3, 16, r1; mad.lo.u32 r5, r2, 4, r5; st.shared.u32 [r5], r4;
    bar.sync 0;
    mad.lo.u32 r6, r0, 4, r1; ld.shared.u32 r7, [r6];
    mad.wide.u32 d3, r0, 4, d1; st.global.u32 [d3], r7;
    """,
    2, 128, SMEM,
)  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shared_transpose(seed: int) -> None:
    x, y = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
    run(TRANSPOSE, x, y, shared=512, seed=seed)
    assert (y.reshape(32, 4) == x.reshape(4, 32).T).all()


def test_missing_barrier_is_a_race() -> None:
    with pytest.raises(SimulationError) as caught:
        run(TRANSPOSE.replace("bar.sync 0;", ""), np.zeros(128, np.uint32), np.zeros(128, np.uint32), shared=512)
    assert "race" in str(caught.value)
    assert "st.shared.u32 [r5], r4" in str(caught.value)
    assert "ld.shared.u32 r7, [r6]" in str(caught.value)


def test_write_after_read_needs_a_barrier_too() -> None:
    body = "bar.sync 0; mov.u32 r8, 0; st.shared.u32 [r5], r8;"
    again = TRANSPOSE.replace("mad.wide.u32 d3", body + "mad.wide.u32 d3")
    run(again, np.zeros(128, np.uint32), np.zeros(128, np.uint32), shared=512)
    with pytest.raises(SimulationError, match="race: this write"):
        run(again.replace("bar.sync 0; mov", "mov"), np.zeros(128, np.uint32), np.zeros(128, np.uint32), shared=512)


FLAG = frame(
    """
    mov.u32 r1, smem; shr.u32 r2, r0, 5; and.b32 r3, r0, 31; mad.lo.u32 r4, r3, 4, r1; mov.u32 r6, 0;
    setp.eq.u32 p1, r0, 0; @p1 st.shared.u32 [r1+128], r6; bar.sync 0;
    setp.eq.u32 p1, r2, 1; @p1 bra WRITER;
SPIN: ld.acquire.cta.shared.u32 r5, [r1+128]; setp.eq.u32 p2, r5, 0; @p2 bra SPIN;
    ld.shared.u32 r7, [r4]; mad.wide.u32 d1, r3, 4, d0; st.global.u32 [d1], r7; bra OUT;
WRITER:
    st.shared.u32 [r4], r0; bar.warp.sync -1; mov.u32 r6, 1;
    elect.sync _|p3, -1; @p3 st.release.cta.shared.u32 [r1+128], r6;
OUT:
    """,
    1,
    64,
    SMEM,
)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_flags_in_shared_memory_order_accesses(seed: int) -> None:
    out = np.zeros(32, np.uint32)
    run(FLAG, out, shared=132, seed=seed)
    assert out.tolist() == list(range(32, 64))
    with pytest.raises(SimulationError, match=r"race|endless loop"):
        run(FLAG.replace("ld.acquire.cta.shared", "ld.shared"), out, shared=132, seed=seed, max_steps=2000)


def test_shared_out_of_bounds() -> None:
    with pytest.raises(SimulationError, match="shared store of 4 bytes outside"):
        run(TRANSPOSE, np.zeros(128, np.uint32), np.zeros(128, np.uint32), shared=508)


def test_named_barriers_arrive_and_sync() -> None:
    text = frame(
        """
        mov.u32 r1, smem; shr.u32 r2, r0, 5; and.b32 r3, r0, 31; mad.lo.u32 r4, r3, 4, r1;
        setp.eq.u32 p1, r2, 0; @p1 bra PRODUCER;
        bar.sync 3, 96;
        ld.shared.u32 r5, [r4]; mad.wide.u32 d1, r0, 4, d0; st.global.u32 [d1], r5;
        bra OUT;
    PRODUCER:
        st.shared.u32 [r4], r3; bar.arrive 3, 96;
    OUT:
        """,
        1, 96, SMEM,
    )  # fmt: skip
    out = np.full(96, 99, np.uint32)
    run(text, out, shared=128)
    assert out.tolist() == [99] * 32 + list(range(32)) * 2
    with pytest.raises(SimulationError, match=r"deadlock(.|\n)*waits at barrier 3 \(count 96\)"):
        run(text.replace("bar.arrive 3, 96;", ""), out, shared=128)
    with pytest.raises(SimulationError, match="while others wait for 96"):
        run(text.replace("bar.arrive 3, 96;", "bar.arrive 3, 64;"), out, shared=128)


def test_barrier_reduction() -> None:
    out = np.zeros(64, np.uint32)
    body = "setp.lt.u32 p1, r0, 37; barrier.cta.red.popc.aligned.u32 r1, 0, p1; mad.wide.u32 d1, r0, 4, d0; st.global.u32 [d1], r1;"
    run(frame(body, 1, 64), out)
    assert (out == 37).all()


def test_barrier_in_diverged_code() -> None:
    with pytest.raises(SimulationError, match="deadlock"):
        run(frame("setp.lt.u32 p1, r0, 16; @p1 bra A; bar.sync 0; bra B;\nA: bar.sync 0;\nB:"), np.zeros(1))


def test_exited_warps_do_not_count() -> None:
    run(frame("setp.ge.u32 p1, r0, 32; @p1 exit; bar.sync 0;", 1, 96), np.zeros(1))


def test_endless_loop_stops() -> None:
    with pytest.raises(SimulationError, match="endless loop"):
        run(frame("L: bra L;"), np.zeros(1), max_steps=1000)


def test_trap() -> None:
    with pytest.raises(SimulationError, match=r"trap was executed(.|\n)*lane 5"):
        run(frame("setp.eq.u32 p1, r0, 5; @p1 trap;"), np.zeros(1))


def test_later_features_are_refused_by_name() -> None:
    with pytest.raises(SimulationError, match=r"cp\.async\.bulk.*not yet"):
        body = (
            "mov.u32 r1, smem; mov.b16 h1, 0; cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
            " [r1], [d0, {r0, r0, r0}], [r1], {h1};"
        )
        run(frame(body, 1, 32, SMEM), np.zeros(4), shared=64)


# -- mbarrier -----------------------------------------------------------------------------------------------------

PIPELINE = frame(
    """
    mov.u32 r1, smem; add.u32 r2, r1, 8; shr.u32 r3, r0, 5; and.b32 r4, r0, 31; mad.lo.u32 r5, r4, 4, r1; add.u32 r5, r5, 128;
    setp.ne.u32 p1, r0, 0; @p1 bra READY;
    mbarrier.init.shared::cta.b64 [r1], 32; mbarrier.init.shared::cta.b64 [r2], 1;
READY:
    bar.sync 0;
    mov.u32 r10, 0; setp.ne.u32 p2, r3, 0; @p2 bra CONSUMER;
PRODUCER:
    and.b32 r11, r10, 1; xor.b32 r12, r11, 1;
W0: mbarrier.try_wait.parity.shared::cta.b64 p3, [r2], r12; @!p3 bra W0;
    mad.lo.u32 r13, r10, 100, r4; st.shared.u32 [r5], r13;
    mbarrier.arrive.shared::cta.b64 _, [r1];
    add.u32 r10, r10, 1; setp.lt.u32 p4, r10, 5; @p4 bra PRODUCER;
    bra OUT;
CONSUMER:
    and.b32 r11, r10, 1;
W1: mbarrier.try_wait.parity.shared::cta.b64 p3, [r1], r11; @!p3 bra W1;
    ld.shared.u32 r13, [r5];
    mad.lo.u32 r14, r10, 32, r4; mad.wide.u32 d1, r14, 4, d0; st.global.u32 [d1], r13;
    bar.warp.sync -1; elect.sync _|p5, -1; @p5 mbarrier.arrive.shared::cta.b64 _, [r2];
    add.u32 r10, r10, 1; setp.lt.u32 p4, r10, 5; @p4 bra CONSUMER;
OUT:
    """,
    1, 64, SMEM,
)  # fmt: skip


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_mbarrier_pipeline(seed: int) -> None:
    out = np.zeros((5, 32), np.uint32)
    run(PIPELINE, out, shared=256, seed=seed)
    assert (out == np.arange(32) + 100 * np.arange(5)[:, None]).all()


def test_mbarrier_faults() -> None:
    out = np.zeros((5, 32), np.uint32)
    with pytest.raises(SimulationError, match=r"deadlock(.|\n)*parity 0 of the mbarrier at 0x400"):
        run(PIPELINE.replace("[r1], 32;", "[r1], 33;"), out, shared=256)
    for name in ("W0", "W1"):
        line = next(line for line in PIPELINE.split("\n") if line.startswith(name))
        with pytest.raises(SimulationError, match=r"race|deadlock"):
            run(PIPELINE.replace(line, ""), out, shared=256)
    with pytest.raises(SimulationError, match=r"without a barrier after its mbarrier\.init"):
        run(PIPELINE.replace("bar.sync 0;", ""), out, shared=256, seed=0)
    with pytest.raises(SimulationError, match="arrivals too many"):
        run(
            PIPELINE.replace(
                "@p5 mbarrier.arrive.shared::cta.b64 _, [r2];", "mbarrier.arrive.shared::cta.b64 _, [r2];"
            ),
            out,
            shared=256,
        )
    with pytest.raises(SimulationError, match="was not initialised"):
        run(PIPELINE.replace("mbarrier.init.shared::cta.b64 [r2], 1;", ""), out, shared=256)


# -- cp.async -----------------------------------------------------------------------------------------------------

COPY = frame(
    """
    mov.u32 r1, smem; mad.lo.u32 r2, r0, 16, r1; mad.wide.u32 d2, r0, 16, d0;
    cp.async.cg.shared.global [r2], [d2], 16;
    cp.async.commit_group;
    cp.async.wait_group 0;
    bar.sync 0;
    xor.b32 r3, r0, 33; mad.lo.u32 r4, r3, 16, r1; ld.shared.v4.u32 {r5, r6, r7, r8}, [r4];
    mad.wide.u32 d3, r0, 16, d1; st.global.v4.u32 [d3], {r5, r6, r7, r8};
    """,
    2, 64, SMEM,
)  # fmt: skip


def test_cp_async() -> None:
    x, y = np.arange(256, dtype=np.uint32).reshape(64, 4), np.zeros((64, 4), np.uint32)
    run(COPY, x, y, shared=1024)
    assert (y == x[np.arange(64) ^ 33]).all()
    zero = COPY.replace("[d2], 16;", "[d2], 16, r9;").replace("cp.async.cg", "and.b32 r9, r0, 15; cp.async.cg")
    run(zero, x, y, shared=1024)
    want = x.copy().view(np.uint8).reshape(64, 16)
    for i in range(64):
        want[i, i % 16 :] = 0
    assert (y.view(np.uint8) == want[np.arange(64) ^ 33]).all()
    ignored = COPY.replace("[d2], 16;", "[d2], 16, p1;").replace("cp.async.cg", "setp.lt.u32 p1, r0, 10; cp.async.cg")
    run(ignored, x, y, shared=1024)
    assert (y == np.where(np.arange(64)[:, None] < 10, 0, x)[np.arange(64) ^ 33]).all()


def test_cp_async_without_wait_or_barrier() -> None:
    x, y = np.zeros((64, 4), np.uint32), np.zeros((64, 4), np.uint32)
    for gone in ("cp.async.wait_group 0;", "bar.sync 0;", "cp.async.commit_group;"):
        with pytest.raises(SimulationError, match=r"cp\.async of warp \d(.|\n)*wait_group"):
            run(COPY.replace(gone, ""), x, y, shared=1024)
    with pytest.raises(SimulationError, match=r"wait_group"):
        run(COPY.replace("wait_group 0", "wait_group 1"), x, y, shared=1024)


def test_cp_async_through_an_mbarrier() -> None:
    text = COPY.replace("cp.async.commit_group;", "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [r20];")
    text = text.replace(
        "cp.async.wait_group 0;", "W: mbarrier.try_wait.parity.shared::cta.b64 p3, [r20], 0; @!p3 bra W;"
    )
    text = text.replace("bar.sync 0;", "")
    text = text.replace(
        "cp.async.cg",
        "add.u32 r20, r1, 1024; setp.eq.u32 p1, r0, 0; @p1 mbarrier.init.shared::cta.b64 [r20], 64;\nbar.sync 0;\ncp.async.cg",
        1,
    )
    x, y = np.arange(256, dtype=np.uint32).reshape(64, 4), np.zeros((64, 4), np.uint32)
    run(text, x, y, shared=1032)
    assert (y == x[np.arange(64) ^ 33]).all()
