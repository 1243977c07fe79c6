"""Bulk and tensor copies: ranks, swizzles, out-of-bounds boxes, reductions, edits of maps, and each thing to be forgotten."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.sim.ptx import tensor_map
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.memory import GlobalMemory
from mimw.sim.ptx.run import run_ptx

from .mimw_programs import LOAD, STORE, kernel, run

BAR = 3072
PREPARE = f"""
add.u32 r4, r1, {BAR}; setp.ne.u32 p1, r0, 0; @p1 bra READY;
mbarrier.init.shared::cta.b64 [r4], 1; fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
"""
WAIT = "WF: mbarrier.try_wait.parity.shared::cta.b64 p9, [r4], 0; @!p9 bra WF;"


def dump(count: int) -> str:
    """Copy `count` words of shared memory from r1 to d0, 32 threads."""
    return f"""
    mov.u32 r20, r0;
    DUMP: setp.lt.u32 p8, r20, {count}; @!p8 bra DUMPED;
    mad.lo.u32 r21, r20, 4, r1; ld.shared.u32 r22, [r21]; mad.wide.u32 d10, r20, 4, d0; st.global.u32 [d10], r22;
    add.u32 r20, r20, 32; bra DUMP;
    DUMPED:
    """


def fill(count: int) -> str:
    """The reverse of `dump`, with the writers' fence and the warp's sync."""
    return f"""
    mov.u32 r20, r0;
    FILL: setp.lt.u32 p8, r20, {count}; @!p8 bra FILLED;
    mad.lo.u32 r21, r20, 4, r1; mad.wide.u32 d10, r20, 4, d0; ld.global.u32 r22, [d10]; st.shared.u32 [r21], r22;
    add.u32 r20, r20, 32; bra FILL;
    FILLED: fence.proxy.async.shared::cta; bar.warp.sync -1;
    """


def load_text(coords: tuple[int, ...], nbytes: int) -> str:
    at = ", ".join(str(c) for c in coords)
    return kernel(
        f"""{PREPARE}
        @p1 bra ISSUED;
        prefetch.tensormap [d50];
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [r4], {nbytes};
        {LOAD.format(rank=len(coords))} [r1], [d50, {{{at}}}], [r4];
        ISSUED: {WAIT} {dump(nbytes // 4)}
        """,
        1, 1,
    )  # fmt: skip


def store_text(coords: tuple[int, ...], nbytes: int, op: str = "") -> str:
    at = ", ".join(str(c) for c in coords)
    name = STORE.format(rank=len(coords))
    if op:
        name = name.replace("cp.async", "cp.reduce.async").replace("shared::cta.", f"shared::cta.{op}.")
    return kernel(
        f"""{fill(nbytes // 4)}
        setp.ne.u32 p1, r0, 0; @p1 bra DONE;
        {name} [d50, {{{at}}}], [r1];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        DONE:
        """,
        1, 1,
    )  # fmt: skip


def box_of(x: Any, coords: tuple[int, ...], box: tuple[int, ...], fill: Any = 0, steps: tuple[int, ...] = ()) -> Any:
    """The box at `coords` (innermost first) of an array, filled outside, by plain loops over the box."""
    steps = steps or (1,) * len(box)
    extents = tuple(-(-b // s) for b, s in zip(box, steps, strict=True))
    out = np.full(extents[::-1], fill, x.dtype)
    for index in np.ndindex(*out.shape):
        at = tuple(c + s * i for c, s, i in zip(coords[::-1], steps[::-1], index, strict=True))
        if all(0 <= a < n for a, n in zip(at, x.shape, strict=True)):
            out[index] = x[at]
    return out


def swizzled(data: Any, span: int) -> Any:
    """Bytes of shared memory that hold rows of `span` bytes, each row's 16-byte chunks permuted by its number."""
    if not span:
        return data
    rows = data.reshape(-1, span)
    out = np.empty_like(rows)
    per_line = 128 // span
    for r, row in enumerate(rows):
        key = r // per_line % 8 % (span // 16)
        for chunk in range(span // 16):
            to = (chunk ^ key) * 16
            out[r, to : to + 16] = row[chunk * 16 : chunk * 16 + 16]
    return out.reshape(-1)


def map_of(x: Any, box: tuple[int, ...], **options: Any) -> bytes:
    return tensor_map.encode(x, x.dtype.name, x.shape[::-1], x.strides[-2::-1], box, **options)


def tensor(shape: tuple[int, ...], dtype: Any = np.float16) -> Any:
    """Random values in an array with a padded innermost dimension."""
    rng = np.random.default_rng(5)
    padded = (*shape[:-1], -(-shape[-1] // 16) * 16 + 16)
    return rng.integers(-100, 100, padded).astype(dtype)[..., : shape[-1]]


RANKS = [
    ((64,), (32,), (16,), 0), ((40,), (32,), (24,), 0), ((9, 50), (16, 4), (8, 3), 0), ((20, 70), (64, 8), (8, 5), 128),
    ((20, 70), (64, 16), (-8, -3), 128), ((20, 70), (32, 12), (56, 15), 64), ((20, 70), (16, 24), (0, -20), 32),
    ((3, 9, 33), (32, 4, 2), (-16, 7, 2), 64), ((2, 3, 5, 20), (8, 3, 2, 2), (16, -1, 2, 1), 0),
    ((2, 2, 3, 4, 24), (16, 2, 2, 1, 2), (8, 3, 1, 1, -1), 32), ((20, 70), (64, 8), (1000, 5), 128),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "box", "coords", "span"), RANKS)
@pytest.mark.parametrize("seed", [0, 3])
def test_loads(shape: tuple[int, ...], box: tuple[int, ...], coords: tuple[int, ...], span: int, seed: int) -> None:
    x = tensor(shape)
    want = box_of(x, coords, box)
    out = np.zeros(want.nbytes, np.uint8)
    run(load_text(coords, want.nbytes), map_of(x, box, swizzle=span), out, seed=seed)
    assert out.tobytes() == swizzled(want.reshape(-1).view(np.uint8), span).tobytes()


@pytest.mark.parametrize(("shape", "box", "coords", "span"), RANKS)
def test_stores(shape: tuple[int, ...], box: tuple[int, ...], coords: tuple[int, ...], span: int) -> None:
    coords = tuple(max(0, c) for c in coords)
    x, tile = tensor(shape), tensor(box[::-1])
    want = x.copy()
    for index in np.ndindex(*tile.shape):
        at = tuple(c + i for c, i in zip(coords[::-1], index, strict=True))
        if all(0 <= a < n for a, n in zip(at, x.shape, strict=True)):
            want[at] = tile[index]
    data = swizzled(np.ascontiguousarray(tile).reshape(-1).view(np.uint8), span)
    run(store_text(coords, tile.nbytes), map_of(x, box, swizzle=span), np.ascontiguousarray(data))
    assert x.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, np.float64, ml_dtypes.bfloat16])
def test_element_types(dtype: Any) -> None:
    x = tensor((12, 40), dtype)
    want = box_of(x, (32, 5), (16, 4))
    out = np.zeros(want.nbytes, np.uint8)
    run(load_text((32, 5), want.nbytes), map_of(x, (16, 4)), out)
    assert out.tobytes() == want.tobytes()


def test_nan_fill_and_element_strides() -> None:
    x = tensor((12, 40), np.float32)
    out = np.zeros((8, 4), np.float32)
    run(load_text((36, 8), out.nbytes), map_of(x, (4, 8), fill="nan"), out)
    assert np.isnan(out[4:]).all() and (out[:4] == x[8:12, 36:40]).all()
    run(load_text((40, 0), out.nbytes), map_of(x, (4, 8), fill="nan"), out)
    assert (out.view(np.uint32) == 0x7FF77FF7).all()
    want = box_of(x, (4, 1), (8, 7), steps=(1, 3))
    out = np.zeros_like(want)
    run(load_text((4, 1), want.nbytes), map_of(x, (8, 7), element_strides=(1, 3)), out)
    assert (out == want).all()


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("add", np.float32), ("add", np.int32), ("add", ml_dtypes.bfloat16), ("min", np.int32), ("max", np.float16), ("xor", np.uint32)],
)  # fmt: skip
def test_reductions(op: str, dtype: Any) -> None:
    x, tile = tensor((6, 24), dtype), tensor((4, 16), dtype)[:, ::-1].copy()
    want = x.copy()
    part = want[3:6, 16:24]
    combine: Any = {"add": np.add, "min": np.minimum, "max": np.maximum, "xor": np.bitwise_xor}[op]
    part[...] = combine(part, tile[:3, :8])
    run(store_text((16, 3), tile.nbytes, op), map_of(x, (16, 4)), tile)
    assert x.tobytes() == want.tobytes()


PLAIN = f"""{PREPARE}
@p1 bra ISSUED;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [r4], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d0], 256, [r4];
ISSUED: {WAIT}
mad.lo.u32 r10, r0, 4, r1; ld.shared.u32 r11, [r10]; add.u32 r11, r11, 1; st.shared.u32 [r10], r11;
fence.proxy.async.shared::cta; bar.warp.sync -1;
@p1 bra DONE;
cp.async.bulk.global.shared::cta.bulk_group [d1], [r1], 128;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [d1+128], [r1+128], 128;
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
DONE:
"""


@pytest.mark.parametrize("seed", range(3))
def test_plain_copies(seed: int) -> None:
    x, y = np.arange(64, dtype=np.uint32), np.full(64, 1000, np.uint32)
    run(kernel(PLAIN, pointers=2), x, y, seed=seed)
    assert y[:32].tolist() == list(range(1, 33)) and y[32:].tolist() == list(range(1032, 1064))


FAULTS = [
    ("fence.mbarrier_init.release.cluster;", "", r"not yet visible to the async proxy"),
    (WAIT, "", r"race: this access by warp 0 and the earlier write by the bulk copy that signals the mbarrier at 0x1000"),
    ("[r4], 256;\n", "[r4], 272;\n", r"deadlock(.|\n)*0 arrivals and 16 bytes are missing"),
    ("[r4], 256;\n", "[r4], 240;\n", r"deadlock(.|\n)*16 bytes more than expected"),
    ("fence.proxy.async.shared::cta;", "", r"through the generic proxy: fence\.proxy\.async"),
    ("bar.warp.sync -1;\n", "\n", r"in lane 1 of the same warp: bar\.warp\.sync after the fence"),
    ("cp.async.bulk.wait_group.read 0;", "", r"a thread exits without cp\.async\.bulk\.wait_group"),
    ("cp.async.bulk.commit_group;", "", r"a thread exits without cp\.async\.bulk\.wait_group"),
    ("DONE:", "DONE: @!p1 st.shared.u32 [r10], r11;", None), ("DONE:", "DONE: bar.warp.sync -1; st.shared.u32 [r10], r11;", None),
    ("DONE:", "DONE: st.shared.u32 [r10], r11;", r"earlier read by the bulk store of warp 0 lane 0"),
    ("cp.async.bulk.wait_group.read 0;\nDONE:", "DONE: bar.warp.sync -1; st.shared.u32 [r10], r11; cp.async.bulk.wait_group 0;",
     r"earlier read by the bulk store of warp 0 lane 0"),
    ("[d0], 256", "[d0], 264", r"multiples of 16"),
    ("[r1], [d0]", "[r1+8], [d0]", r"no multiple of 16"),
    ("[r1], [d0]", f"[r1+{BAR - 64}], [d0]", r"writes over the mbarrier at 0x1000"),
    ("[d0], 256", "[d0+64], 256", r"outside every allocation"),
    ("[r4];\nISSUED", "[r4+8];\nISSUED", r"was not initialised"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), FAULTS)
def test_faults_of_bulk_copies(old: str, new: str, message: str | None) -> None:
    source = kernel(PLAIN, pointers=2)
    assert source.count(old) == 1
    x, y = np.arange(64, dtype=np.uint32), np.full(64, 1000, np.uint32)
    if message is None:
        # A thread's own write is ordered behind its own wait; the other lanes' need the warp's sync.
        run(source.replace(old, new), x, y)
        return
    for seed in (0, 1):
        with pytest.raises(SimulationError, match=message):
            run(source.replace(old, new), x, y, seed=seed)


def test_exit_while_a_load_is_in_flight() -> None:
    x, out = tensor((20, 70)), np.zeros(1024, np.uint8)
    text = load_text((0, 0), 1024)
    with pytest.raises(SimulationError, match=r"exits while a copy that .* lane 0 started still uses"):
        run(text[: text.index("ISSUED:")] + "ISSUED: ret; }", map_of(x, (64, 8), swizzle=128), out)


def test_maps_are_checked() -> None:
    x, out = tensor((20, 70)), np.zeros(1024, np.uint8)
    text = load_text((0, 0), 1024)
    good = map_of(x, (64, 8), swizzle=128)
    with pytest.raises(SimulationError, match="are no tensor map"):
        run(text, bytes(128), out)
    with pytest.raises(SimulationError, match="a 3d copy with a tensor map of rank 2"):
        run(load_text((0, 0, 0), 1024), good, out)
    with pytest.raises(SimulationError, match="no multiple of 128"):
        run(text.replace("[r1], [d50", "[r1+64], [d50"), good, out)
    with pytest.raises(SimulationError, match="no multiple of 64"):
        run(text.replace("cvta.param.u64 d50, d50;", "cvta.param.u64 d50, d50; add.u64 d50, d50, 16;"), good, out)
    with pytest.raises(ValueError, match="the array ends after"):
        tensor_map.encode(x, "float16", (70, 21), x.strides[:1], (64, 8), swizzle=128)
    world = GlobalMemory()
    address = world.register([x])[0]
    wrong = tensor_map.encode(address, "float16", (70, 21), x.strides[:1], (64, 8), swizzle=128)
    with pytest.raises(SimulationError, match=r"tensor copy of .* outside every allocation"):
        run_ptx(load_text((0, 15), 1024), "k", (1, 1, 1), [wrong, out], shared_bytes=4096, memory=world)
    for fields, message in [
        ({"box": (7, 8)}, "multiple of 16 bytes"), ({"box": (72, 8), "swizzle": 128}, "exceeds the swizzle span"),
        ({"box": (64, 300)}, "1 to 256"), ({"box": (64, 8), "strides": (200,)}, "multiples of 16"),
        ({"box": (64, 8), "swizzle": 48}, "span 48"),
    ]:  # fmt: skip
        options: dict[str, Any] = {"strides": x.strides[:1], **fields}
        with pytest.raises(ValueError, match=message):
            tensor_map.encode(x, "float16", (70, 20), **options)


EDIT = f"""{PREPARE}
mad.lo.u32 r10, r0, 4, r1; mov.u32 r11, 0; st.shared.u32 [r10+1024], r11; bar.warp.sync -1;
@p1 bra EDITED;
add.u32 r12, r1, 1024;
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [r12], d2;
tensormap.replace.tile.rank.shared::cta.b1024.b32 [r12], 1;
tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [r12], 0, 16;
tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [r12], 1, 4;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [r12], 0, 24;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [r12], 1, 6;
tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [r12], 0, 96;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [r12], 0, 1;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [r12], 1, 1;
tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [r12], 7;
tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [r12], 0;
tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [r12], 0;
tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [r12], 0;
EDITED: bar.warp.sync -1; add.u32 r12, r1, 1024;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [d1], [r12], 128;
@p1 bra ISSUED;
fence.proxy.tensormap::generic.acquire.gpu [d1], 128;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [r4], 256;
{LOAD.format(rank=2)} [r1], [d1, {{16, 3}}], [r4];
ISSUED: {WAIT} {dump(64)}
"""


def test_a_map_made_on_the_device() -> None:
    x = np.arange(6 * 24, dtype=np.float32).reshape(6, 24)
    out, room = np.zeros((4, 16), np.float32), np.zeros(128, np.uint8)
    run(kernel(EDIT, pointers=3), out, room, x)
    assert (out == box_of(x, (16, 3), (16, 4))).all()
    assert tensor_map.is_map(room.tobytes())
    fence = "fence.proxy.tensormap::generic.acquire.gpu [d1], 128;"
    with pytest.raises(SimulationError, match=r"fence\.proxy\.tensormap::generic\.acquire"):
        run(kernel(EDIT.replace(fence, ""), pointers=3), out, np.zeros(128, np.uint8), x)


@pytest.mark.parametrize("text", [load_text, store_text])
@pytest.mark.parametrize("first", [4, 3, -5, 60])
def test_boxes_begin_at_multiples_of_16_bytes(text: Any, first: int) -> None:
    """An H200 refuses these with CUDA error 715."""
    x, tile = tensor((20, 72)), np.zeros((8, 16), np.uint16)
    with pytest.raises(
        SimulationError, match=f"innermost coordinate {first}, byte {2 * first} of its row: TMA takes multiples of 16"
    ):
        run(text((first, 5), tile.nbytes), map_of(x, (16, 8)), tile)


def test_stores_cannot_begin_below_zero() -> None:
    """CUDA C++ Programming Guide, "Tensor memory access": the corner of a written tile has no negative index."""
    x, tile = tensor((20, 72)), np.zeros((8, 16), np.uint16)
    with pytest.raises(SimulationError, match=r"store at coordinates \(8, -1\): a store cannot begin below 0"):
        run(store_text((8, -1), tile.nbytes), map_of(x, (16, 8)), tile)
