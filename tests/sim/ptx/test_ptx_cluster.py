"""Clusters: ranks, distributed shared memory, remote signals, multicast, the cluster barrier, and who may exit when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mimw.sim.ptx import tensor_map
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.run import run_ptx

from .mimw_programs import LOAD, kernel, run

SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


OWN_ADDRESS = """
mapa.shared::cluster.u32 r10, r1, r2;
shl.b32 r11, r2, 24;
setp.ne.u32 p1, r0, 0; @p1 bra DONE;
mul.wide.u32 d1, r2, 12;
add.u64 d0, d0, d1;
sub.u32 r12, r1, r11;
shr.u32 r13, r1, 24;
sub.u32 r14, r10, r1;
st.global.u32 [d0], r13; st.global.u32 [d0+4], r14; st.global.u32 [d0+8], r12;
DONE:
"""
"""Of each CTA: the rank in its own shared address, mapa of itself less that address, the address without the rank."""


def test_own_addresses_carry_the_rank() -> None:
    """As on an H200: a descriptor made of such an address without masking has the rank in its leading byte offset."""
    out = np.zeros((2, 3), np.uint32)
    run(kernel(OWN_ADDRESS, pointers=1, cluster=2), out, grid=2)
    assert out[:, 0].tolist() == [0, 1]
    assert out[:, 1].tolist() == [0, 0]
    assert out[0, 2] == out[1, 2] < 1 << 24


def test_ranks_and_ids() -> None:
    names = ("cluster_ctarank", "cluster_nctarank", "cluster_ctaid.x", "cluster_ctaid.y", "clusterid.x", "clusterid.y",
             "nclusterid.x", "nclusterid.y", "cluster_nctaid.x", "cluster_nctaid.y")  # fmt: skip
    stores = "".join(f"mov.u32 r10, %{name}; st.global.u32 [d10+{4 * i}], r10;\n" for i, name in enumerate(names))
    body = f"""mov.u32 r11, %ctaid.x; mov.u32 r12, %ctaid.y; mad.lo.u32 r11, r12, 4, r11; mad.wide.u32 d10, r11, {4 * len(names)}, d0;
    {stores}"""
    out = np.zeros((6, 4, len(names)), np.uint32)
    run_ptx(kernel(body, pointers=1), "k", (4, 6, 1), [out], cluster=(2, 3, 1))
    for y in range(6):
        for x in range(4):
            want = [x % 2 + 2 * (y % 3), 6, x % 2, y % 3, x // 2, y // 3, 2, 2, 2, 3]
            assert out[y, x].tolist() == want
    with pytest.raises(SimulationError, match="does not consist of clusters"):
        run_ptx(kernel(body, pointers=1), "k", (4, 4, 1), [out], cluster=(2, 3, 1))
    with pytest.raises(SimulationError, match=r"needs clusters of \(2, 1, 1\)"):
        run_ptx(kernel(body, pointers=1, cluster=2), "k", (4, 6, 1), [out], cluster=(4, 1, 1))


EXCHANGE = f"""
mad.lo.u32 r10, r0, 4, r1; mad.lo.u32 r11, r2, 100, r0; st.shared.u32 [r10], r11;
{SYNC}
add.u32 r12, r2, 1; rem.u32 r12, r12, 4; mapa.shared::cluster.u32 r13, r10, r12;
getctarank.shared::cluster.u32 r14, r13; getctarank.shared::cluster.u32 r15, r10;
ld.shared::cluster.u32 r16, [r13]; mad.lo.u32 r17, r14, 1000, r16;
mov.u32 r18, %ctaid.x; mad.lo.u32 r18, r18, 32, r0; mad.wide.u32 d10, r18, 4, d0; st.global.u32 [d10], r17;
barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;
"""


@SEEDS
def test_distributed_shared_memory(seed: int) -> None:
    out = np.zeros((8, 32), np.uint32)
    run(kernel(EXCHANGE, pointers=1, cluster=4), out, grid=8, seed=seed)
    for cta in range(8):
        rank = (cta + 1) % 4
        assert out[cta].tolist() == [1000 * rank + 100 * rank + i for i in range(32)]


@SEEDS
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (SYNC, "", r"race|exited"),
        (SYNC, SYNC.replace("release", "relaxed"), r"race: this access by warp 0 of CTA rank"),
        ("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;", "", r"exits without knowing that warp 0 of CTA rank|has exited"),
        ("mapa.shared::cluster.u32 r13, r10, r12", "mapa.shared::cluster.u32 r13, r10, 4", r"mapa to a rank outside the cluster of 4"),
        ("ld.shared::cluster.u32 r16, [r13]", "ld.shared.u32 r16, [r13]", "outside every allocation"),
        ("barrier.cluster.wait.acquire.aligned;\nadd", "add", r"barrier\.cluster\.arrive twice|race"),
    ],
)  # fmt: skip
def test_faults_of_exchanges(seed: int, old: str, new: str, message: str) -> None:
    assert EXCHANGE.count(old) == 1
    with pytest.raises(SimulationError, match=message):
        run(kernel(EXCHANGE.replace(old, new), pointers=1, cluster=4), np.zeros((8, 32), np.uint32), grid=8, seed=seed)


def test_generic_addresses_and_atomics_reach_the_cluster() -> None:
    out = np.zeros((2, 1), np.uint32)
    body = f"""
    setp.ne.u32 p1, r0, 0; mov.u32 r10, 0; @!p1 st.shared.u32 [r1], r10;
    {SYNC}
    cvt.u64.u32 d10, r1; cvta.shared.u64 d10, d10; mapa.u64 d11, d10, 0; atom.add.u32 r11, [d11], 1;
    mapa.shared::cluster.u32 r12, r1, 1; red.relaxed.cluster.shared::cluster.add.u32 [r12], 2;
    {SYNC}
    ld.shared.u32 r13, [r1]; mov.u32 r14, %ctaid.x; mad.wide.u32 d12, r14, 4, d0; @!p1 st.global.u32 [d12], r13;
    """
    run(kernel(body, pointers=1, cluster=2), out, grid=2)
    assert out[:, 0].tolist() == [64, 128]


def test_a_cluster_barrier_without_aligned() -> None:
    """Lanes of a warp come to the barrier at two places."""
    body = """
    setp.lt.u32 p1, r0, 7; @p1 bra FEW;
    barrier.cluster.arrive.release; barrier.cluster.wait.acquire; bra END;
    FEW: barrier.cluster.arrive; barrier.cluster.wait;
    END: mad.wide.u32 d10, r0, 4, d0; st.global.u32 [d10], r0;
    """
    out = np.zeros(32, np.uint32)
    run(kernel(body, pointers=1, cluster=2), out, grid=2)
    assert out.tolist() == list(range(32))
    with pytest.raises(
        SimulationError,
        match=r"deadlock(.|\n)*waits at the cluster barrier(.|\n)*cta \(1,0,0\) warp 0.* have not arrived",
    ):
        run(kernel("setp.eq.u32 p1, r2, 1; @p1 bar.sync 1, 64;" + body, pointers=1, cluster=2), out, grid=2)


REMOTE = f"""
setp.ne.u32 p1, r0, 0; add.u32 r4, r1, 2048; @p1 bra READY;
mbarrier.init.shared::cta.b64 [r4], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [r4], EXPECTED; fence.mbarrier_init.release.cluster;
READY: mov.u32 r10, 0; mad.lo.u32 r11, r0, 8, r1; st.shared.u32 [r11], r10; st.shared.u32 [r11+4], r10;
{SYNC}
xor.b32 r12, r2, 1; mapa.shared::cluster.u32 r13, r11, r12; mapa.shared::cluster.u32 r14, r4, r12; mapa.shared::cluster.u32 r15, r1, r12;
mad.lo.u32 r16, r2, 1000, r0;
SEND
W: mbarrier.try_wait.parity.shared::cta.b64 p9, [r4], 0; @!p9 bra W;
ld.shared.u32 r17, [r11]; mov.u32 r18, %ctaid.x; mad.lo.u32 r18, r18, 32, r0; mad.wide.u32 d10, r18, 4, d0; st.global.u32 [d10], r17;
barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;
"""
ST = ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [r13], {r16, r0}, [r14];", 256)
RED = ("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [r15], r16, [r14];", 128)


def remote(send: tuple[str, int]) -> str:
    return kernel(REMOTE.replace("SEND", send[0]).replace("EXPECTED", str(send[1])), pointers=1, cluster=2)


@SEEDS
def test_asynchronous_stores(seed: int) -> None:
    out = np.zeros((2, 32), np.uint32)
    run(remote(ST), out, grid=2, seed=seed)
    assert out.tolist() == [[1000 + i for i in range(32)], list(range(32))]
    run(remote(RED), out, grid=2, seed=seed)
    assert out[:, 0].tolist() == [1000 * 32 + 496, 496] and not out[:, 1:].any()


@SEEDS
def test_faults_of_asynchronous_stores(seed: int) -> None:
    out = np.zeros((2, 32), np.uint32)
    wait = "W: mbarrier.try_wait.parity.shared::cta.b64 p9, [r4], 0; @!p9 bra W;"
    with pytest.raises(SimulationError, match=r"race: this access .* earlier write by the bulk copy that signals"):
        run(remote(ST).replace(wait, ""), out, grid=2, seed=seed)
    with pytest.raises(SimulationError, match="lies in another CTA than its destination"):
        run(remote(ST).replace("[r14]", "[r4]"), out, grid=2, seed=seed)
    with pytest.raises(SimulationError, match=r"deadlock(.|\n)*256 bytes are missing|more than expected"):
        run(remote((ST[0], 512)), out, grid=2, seed=seed)


def test_remote_arrivals_pass_order() -> None:
    """CTA 0 may overwrite what CTA 1 read when CTA 1 has arrived at CTA 0's barrier."""
    body = f"""
    setp.ne.u32 p1, r0, 0; add.u32 r4, r1, 2048; @!p1 mbarrier.init.shared::cta.b64 [r4], 32;
    mad.lo.u32 r10, r0, 4, r1; st.shared.u32 [r10], r0;
    {SYNC}
    setp.eq.u32 p2, r2, 0; @p2 bra ZERO;
    mapa.shared::cluster.u32 r11, r10, 0; ld.shared::cluster.u32 r12, [r11]; mapa.shared::cluster.u32 r13, r4, 0;
    mbarrier.arrive.shared::cluster.b64 _, [r13]; bra END;
    ZERO: W: mbarrier.try_wait.parity.shared::cta.b64 p9, [r4], 0; @!p9 bra W;
    st.shared.u32 [r10], r2;
    END: {SYNC}
    """
    run(kernel(body, cluster=2), grid=2)
    with pytest.raises(
        SimulationError, match=r"race: this write by warp 0 of CTA rank 0 and the earlier read by warp 0 of CTA rank 1"
    ):
        run(
            kernel(body.replace("W: mbarrier.try_wait.parity.shared::cta.b64 p9, [r4], 0; @!p9 bra W;", ""), cluster=2),
            grid=2,
        )
    with pytest.raises(SimulationError, match="an mbarrier of another CTA"):
        run(kernel(body.replace("mbarrier.arrive.shared::cluster.b64 _, [r13];",
                                "mbarrier.test_wait.parity.shared::cta.b64 p8, [r13], 0;"), cluster=2), grid=2)  # fmt: skip
    with pytest.raises(SimulationError, match=r"exits without knowing that warp 0 of CTA rank 1|has exited"):
        run(kernel(body.replace(f"END: {SYNC}", "END:").replace("ZERO: W:", "ZERO: bra END; W:"), cluster=2), grid=2)


MULTICAST = f"""
setp.ne.u32 p1, r0, 0; add.u32 r4, r1, 3072; @p1 bra READY;
mbarrier.init.shared::cta.b64 [r4], 1; fence.mbarrier_init.release.cluster;
READY: {SYNC}
@p1 bra ISSUED;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [r4], 2048;
mad.lo.u32 r10, r2, 1024, r1; mul.lo.u32 r11, r2, 8; mov.b16 h1, 3;
{LOAD.format(rank=2)}.multicast::cluster [r10], [d50, {{0, r11}}], [r4], h1;
ISSUED:
W: mbarrier.try_wait.parity.shared::cta.b64 p9, [r4], 0; @!p9 bra W;
mov.u32 r18, %ctaid.x; mad.wide.u32 d10, r18, 2048, d0; mov.u32 r20, r0;
DUMP: mad.lo.u32 r21, r20, 4, r1; ld.shared.u32 r22, [r21]; mad.wide.u32 d11, r20, 4, d10; st.global.u32 [d11], r22;
add.u32 r20, r20, 32; setp.lt.u32 p8, r20, 512; @p8 bra DUMP;
barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;
"""


def multicast(text: str, seed: int) -> tuple[Any, Any]:
    x = np.random.default_rng(2).standard_normal((16, 64)).astype(np.float16)
    out = np.zeros((2, 16, 64), np.float16)
    run(kernel(text, 1, 1, cluster=2), tensor_map.encode(x, "f16", (64, 16), (128,), (64, 8)), out, grid=2, seed=seed)
    return x, out


@SEEDS
def test_multicast(seed: int) -> None:
    x, out = multicast(MULTICAST, seed)
    assert (out == x).all()


@SEEDS
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[r4], 2048;", "[r4], 1024;", r"deadlock(.|\n)*1024 bytes more than expected|race"),
        ("mov.b16 h1, 3;", "mov.b16 h1, 1;", r"deadlock|exited|race|more than expected"),
        ("mov.b16 h1, 3;", "mov.b16 h1, 7;", r"multicast mask 0x7 in a cluster of 2"),
        (f"READY: {SYNC}", "READY: bar.sync 0;", r"was not initialised|used without a barrier after its mbarrier\.init"),
        ("W: mbarrier.try_wait.parity.shared::cta.b64 p9, [r4], 0; @!p9 bra W;", "", r"race"),
    ],
)  # fmt: skip
def test_faults_of_multicasts(seed: int, old: str, new: str, message: str) -> None:
    assert MULTICAST.count(old) == 1
    with pytest.raises(SimulationError, match=message):
        multicast(MULTICAST.replace(old, new), seed)


def test_copies_between_ctas() -> None:
    body = f"""
    setp.ne.u32 p1, r0, 0; add.u32 r4, r1, 2048; @p1 bra READY;
    mbarrier.init.shared::cta.b64 [r4], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [r4], 256; fence.mbarrier_init.release.cluster;
    READY: mad.lo.u32 r10, r0, 4, r1; mad.lo.u32 r11, r2, 100, r0; st.shared.u32 [r10], r11; mov.u32 r12, 5; st.shared.u32 [r10+256], r12;
    fence.proxy.async.shared::cta;
    {SYNC}
    @p1 bra ISSUED;
    xor.b32 r13, r2, 1; mapa.shared::cluster.u32 r14, r1, r13; mapa.shared::cluster.u32 r15, r4, r13;
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [r14+128], [r1], 128, [r15];
    cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [r14+256], [r1], 128, [r15];
    ISSUED: W: mbarrier.try_wait.parity.shared::cta.b64 p9, [r4], 0; @!p9 bra W;
    ld.shared.u32 r16, [r10+128]; ld.shared.u32 r17, [r10+256];
    mov.u32 r18, %ctaid.x; mad.lo.u32 r18, r18, 32, r0; mad.wide.u32 d10, r18, 8, d0; st.global.v2.u32 [d10], {{r16, r17}};
    REUSE
    {SYNC}
    """
    out = np.zeros((2, 32, 2), np.uint32)
    for seed in (0, 1, 2):
        run(kernel(body.replace("REUSE", ""), pointers=1, cluster=2), out, grid=2, seed=seed)
        for cta in range(2):
            assert out[cta].tolist() == [[100 * (1 - cta) + i, 105 + i - 100 * cta] for i in range(32)]
        with pytest.raises(
            SimulationError,
            match=r"race: this write by warp 0 .* earlier read by the bulk copy that signals the mbarrier at 0xc00",
        ):
            run(
                kernel(body.replace("REUSE", "st.shared.u32 [r10], r0;"), pointers=1, cluster=2), out, grid=2, seed=seed
            )
