"""The TMA engine, bulk copies, clusters, views of buffers, atomics."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.sim.tile import TensorDescriptor, run
from tests.sim.tile.mimw_programs import fault, kernel, line_of

# -- blocks ------------------------------------------------------------------------------------------------------------

COPY = """
%zero = arith.constant {value = 0} : i32
%buf = memory.local_alloc : memdesc<8x8xf32, shared>
%bars = barrier.alloc : barrier<1, arrive 1>
%bar = barrier.view %bars, %zero : barrier<0, arrive 1>
barrier.expect %bar {bytes = 256}
async_copy.tma_prefetch %x, [%r, %c]
async_copy.tma_load %x, %buf, %bar, [%r, %c]
barrier.wait %bar, %zero
async_copy.tma_store %y, %buf, [%s, %t]
async_copy.tma_store_wait {pendings = 0}
"""
COPY_ARGUMENTS = "%x: tensor_desc<8x8xf32>, %y: tensor_desc<8x8xf32>, %r: i32, %c: i32, %s: i32, %t: i32"


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize(("r", "c"), [(0, 0), (3, 8), (8, 8), (-5, -4), (10, 8), (12, 0), (0, 100), (-8, 0)])
def test_block_at_the_edges(r: int, c: int, padding: str) -> None:
    x = np.random.default_rng(0).standard_normal((11, 12)).astype(np.float32)
    y = np.full((8, 8), 5, np.float32)
    around = np.full((11 + 224, 12 + 224), 0 if padding == "zero" else np.nan, np.float32)
    around[112:123, 112:124] = x
    run(
        kernel(COPY_ARGUMENTS, COPY),
        [TensorDescriptor(x, (8, 8), padding=padding), TensorDescriptor(y, (8, 8)), r, c, 0, 0],
        (1,),
    )
    assert np.array_equal(y, around[112 + r : 120 + r, 112 + c : 120 + c], equal_nan=True)


@pytest.mark.parametrize(("s", "t"), [(0, 0), (3, 4), (9, 8), (20, 0), (0, 12)])
def test_stores_are_clipped(s: int, t: int) -> None:
    x = np.arange(1, 65, dtype=np.float32).reshape(8, 8)
    whole = np.full((64, 64), -1, np.float32)
    y = whole[16:27, 16:28]
    run(kernel(COPY_ARGUMENTS, COPY), [TensorDescriptor(x, (8, 8)), TensorDescriptor(y, (8, 8)), 0, 0, s, t], (1,))
    want = np.full((64, 64), -1, np.float32)
    target = np.full((48, 32), -1, np.float32)
    target[8 + s : 16 + s, 8 + t : 16 + t] = x
    want[16:27, 16:28] = target[8:19, 8:20]
    assert np.array_equal(whole, want)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [(d, k) for d in ("i32", "u32") for k in ("add", "min", "max", "and", "or", "xor")]
    + [(d, k) for d in ("f16", "bf16", "f32") for k in ("add", "min", "max")],
)
def test_reducing_stores(dtype: str, kind: str) -> None:
    numpy = {"i32": np.int32, "u32": np.uint32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}[dtype]
    rng = np.random.default_rng(2)
    x, y = (
        (rng.standard_normal((8, 8)) * 100).astype(np.float32).astype(np.int64 if dtype == "i32" else np.float32)
        for _ in "xy"
    )
    x, y = (np.abs(v).astype(numpy) if dtype == "u32" else v.astype(numpy) for v in (x, y))
    exact = {
        "add": lambda a, b: (a.astype(np.float32) + b.astype(np.float32)).astype(numpy) if dtype[0] in "fb" else a + b,
        "min": np.minimum,
        "max": np.maximum,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
    }[kind]
    want = exact(y, x)
    text = COPY.replace("f32", dtype).replace("[%s, %t]", f'[%s, %t] {{reduce = "{kind}"}}')
    text = text.replace("bytes = 256", f"bytes = {64 * x.itemsize}")
    run(
        kernel(COPY_ARGUMENTS.replace("f32", dtype), text),
        [TensorDescriptor(x, (8, 8)), TensorDescriptor(y, (8, 8)), 0, 0, 0, 0],
        (1,),
    )
    assert np.array_equal(y.astype(np.float64), want.astype(np.float64))


def test_three_dimensions_and_strides() -> None:
    text = """
%zero = arith.constant {value = 0} : i32
%one = arith.constant {value = 1} : i32
%four = arith.constant {value = 4} : i32
%buf = memory.local_alloc : memdesc<2x3x4xf32, shared>
%bars = barrier.alloc : barrier<1, arrive 1>
%bar = barrier.view %bars, %zero : barrier<0, arrive 1>
barrier.expect %bar {bytes = 96}
async_copy.tma_load %x, %buf, %bar, [%one, %zero, %four]
barrier.wait %bar, %zero
async_copy.tma_store %y, %buf, [%zero, %zero, %zero]
"""
    x = np.arange(4 * 5 * 16, dtype=np.float32).reshape(4, 5, 16)
    part = x[::2, :2, :8]
    y = np.zeros((2, 3, 4), np.float32)
    args = [TensorDescriptor(part, (2, 3, 4)), TensorDescriptor(y, (2, 3, 4))]
    run(kernel("%x: tensor_desc<2x3x4xf32>, %y: tensor_desc<2x3x4xf32>", text), args, (1,))
    want = np.zeros((2, 3, 4), np.float32)
    want[0, :2] = part[1, :, 4:8]
    assert np.array_equal(y, want)


DEVICE_MADE = """
%zero = arith.constant {value = 0} : i32
%n = arith.constant {value = 10} : i32
%step = arith.constant {value = 16} : i64
%one = arith.constant {value = 1} : i64
%d = async_copy.make_descriptor %p, [%n, %n, %step, %one] : tensor_desc<8x8xf32>
""" + COPY.replace("%zero = arith.constant {value = 0} : i32\n", "").replace("tma_load %x", "tma_load %d").replace(
    "tma_prefetch %x", "tma_prefetch %d"
)


def test_descriptor_made_on_the_device() -> None:
    x = np.random.default_rng(3).standard_normal((10, 16)).astype(np.float32)
    y = np.zeros((8, 8), np.float32)
    module = kernel(COPY_ARGUMENTS.replace("%x: tensor_desc<8x8xf32>", "%p: ptr<f32>"), DEVICE_MADE)
    run(module, [x, TensorDescriptor(y, (8, 8)), 4, 4, 0, 0], (1,))
    want = np.zeros((8, 8), np.float32)
    want[:6, :6] = x[4:, 4:10]
    assert np.array_equal(y, want)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda x: TensorDescriptor(x[:, 1:], (8, 8)), "address"),
        (lambda x: TensorDescriptor(x, (8, 8), strides=(13, 1)), "stride 0 is 52 bytes"),
        (lambda x: TensorDescriptor(x, (8, 8), strides=(16, 2)), "the last stride is 2"),
        (lambda x: TensorDescriptor(x, (8, 8), shape=(0, 8)), "none may be below 1"),
    ],
)
def test_descriptors_that_the_engine_cannot_take(make: Any, says: str) -> None:
    x = np.zeros((8, 16), np.float32)
    e = fault(kernel(COPY_ARGUMENTS, COPY), [make(x), TensorDescriptor(x, (8, 8)), 0, 0, 0, 0])
    assert e.code == "descriptor" and says in e.message


@pytest.mark.parametrize(("at", "what"), [((0, 3, 0, 0), "load"), ((0, 0, 0, -2), "store")])
def test_blocks_begin_at_multiples_of_16_bytes(at: tuple[int, ...], what: str) -> None:
    x = np.zeros((8, 16), np.float32)
    e = fault(kernel(COPY_ARGUMENTS, COPY), [TensorDescriptor(x, (8, 8)), TensorDescriptor(x, (8, 8)), *at])
    assert e.code == "misaligned" and f"a TMA {what} at offset" in e.message


def test_stores_cannot_begin_below_zero() -> None:
    x = np.zeros((8, 16), np.float32)
    e = fault(kernel(COPY_ARGUMENTS, COPY), [TensorDescriptor(x, (8, 8)), TensorDescriptor(x, (8, 8)), 0, 0, -1, 0])
    assert e.code == "negative-offset" and "(-1, 0)" in e.message


def test_arguments_that_are_no_descriptors() -> None:
    x = np.zeros((8, 16), np.float32)
    for wrong in (x, 3, TensorDescriptor(x, (8, 16)), TensorDescriptor(x.astype(np.float64), (8, 8))):
        with pytest.raises(TypeError):
            run(kernel(COPY_ARGUMENTS, COPY), [wrong, TensorDescriptor(x, (8, 8)), 0, 0, 0, 0], (1,))


def test_a_descriptor_that_reaches_beyond_its_array() -> None:
    x, y = np.zeros((4, 8), np.float32), np.zeros((8, 8), np.float32)
    args = [TensorDescriptor(x, (8, 8), shape=(8, 8)), TensorDescriptor(y, (8, 8)), 0, 0, 0, 0]
    e = fault(kernel(COPY_ARGUMENTS, COPY), args)
    assert e.code == "out-of-bounds" and e.loc is not None and e.loc.line == line_of(COPY, "tma_load")


BULK = """
%zero = arith.constant {value = 0} : i32
%buf = memory.local_alloc : memdesc<64xf32, shared>
%bars = barrier.alloc : barrier<1, arrive 1>
%bar = barrier.view %bars, %zero : barrier<0, arrive 1>
barrier.expect %bar {bytes = 128}
async_copy.bulk_load %x, %buf, %bar, %n
barrier.wait %bar, %zero
async_copy.bulk_store %y, %buf, %n
async_copy.tma_store_wait {pendings = 0, whole = true}
%v = memory.load %y : f32
memory.store %z, %v
"""


@pytest.mark.parametrize("seed", range(5))
def test_bulk_copies(seed: int) -> None:
    x, y, z = np.arange(1, 65, dtype=np.float32), np.zeros(64, np.float32), np.zeros(1, np.float32)
    module = kernel("%x: ptr<f32>, %y: ptr<f32>, %z: ptr<f32>, %n: i32", BULK)
    run(module, [x, y, z, 128], (1,), seed=seed)
    assert y.tolist() == [*range(1, 33), *[0] * 32]
    assert z.tolist() == [1]  # what is waited for whole is in global memory


@pytest.mark.parametrize(("n", "says"), [(100, "a multiple of 16"), (512, "does not fit buf of 256")])
def test_bulk_copies_of_a_wrong_size(n: int, says: str) -> None:
    x = np.zeros(64, np.float32)
    e = fault(kernel("%x: ptr<f32>, %y: ptr<f32>, %z: ptr<f32>, %n: i32", BULK), [x, x, x, n])
    assert e.code == "bulk-size" and says in e.message


# -- clusters ------------------------------------------------------------------------------------------------------------

# Each CTA of a pair loads one half of a block and gives it to both.
SHARE = """
%zero = arith.constant {value = 0} : i32
%one = arith.constant {value = 1} : i32
%four = arith.constant {value = 4} : i32
%eight = arith.constant {value = 8} : i32
%both = arith.constant {value = 3} : i32
%size = cluster.size : i32
%rank = cluster.cta_rank : i32
%pid = control.program_id {axis = 0} : i32
%pair = arith.div %pid, %size : i32
%buf = memory.local_alloc : memdesc<2x4x8xf32, shared>
%bars = barrier.alloc : barrier<1, arrive 1>
%bar = barrier.view %bars, %zero : barrier<0, arrive 1>
task.partition {tasks = ["default/4/0/-1/0", "producer/1/0/-1/0"]} bodies {
  barrier.wait %bar, %zero
  control.for %zero, %size, %one, [] body(%i: i32) {
    %half = memory.local_view %buf, %i : memdesc<4x8xf32, shared, alloc 2x4x8>
    %r0 = arith.mul %pid, %eight : i32
    %r1 = arith.mul %i, %four : i32
    %r = arith.add %r0, %r1 : i32
    async_copy.tma_store %y, %half, [%r, %zero]
    control.yield
  }
  control.yield
} bodies {
  barrier.expect %bar {bytes = 256}
  %mine = memory.local_view %buf, %rank : memdesc<4x8xf32, shared, alloc 2x4x8>
  %p0 = arith.mul %pair, %eight : i32
  %p1 = arith.mul %rank, %four : i32
  %p = arith.add %p0, %p1 : i32
  async_copy.tma_load %x, %mine, %bar, multicast = %both, [%p, %zero]
  control.yield
}
cluster.sync
"""
SHARE_ARGUMENTS = "%x: tensor_desc<4x8xf32>, %y: tensor_desc<4x8xf32>"


@pytest.mark.parametrize("seed", range(10))
def test_multicast_in_a_cluster(seed: int) -> None:
    x = np.random.default_rng(5).standard_normal((24, 8)).astype(np.float32)
    y = np.zeros((48, 8), np.float32)
    module = kernel(SHARE_ARGUMENTS, SHARE, "options {ctas_per_cga = [2, 1, 1]}")
    run(module, [TensorDescriptor(x, (4, 8)), TensorDescriptor(y, (4, 8))], (6,), seed=seed)
    assert np.array_equal(y.reshape(3, 2, 8, 8), np.broadcast_to(x.reshape(3, 1, 8, 8), (3, 2, 8, 8)))


def test_multicast_that_one_cta_does_not_expect() -> None:
    text = SHARE.replace("bytes = 256", "bytes = 512")
    x, y = np.zeros((24, 8), np.float32), np.zeros((48, 8), np.float32)
    e = fault(
        kernel(SHARE_ARGUMENTS, text), [TensorDescriptor(x, (4, 8)), TensorDescriptor(y, (4, 8))], (2,), cluster=(2,)
    )
    assert e.code == "deadlock" and "bars[0] was told to expect 512 bytes, its copies bring 256" in str(e)
    assert "of CTA (1, 0, 0)" in e.message


def test_a_mask_beyond_the_cluster() -> None:
    x, y = np.zeros((24, 8), np.float32), np.zeros((48, 8), np.float32)
    e = fault(kernel(SHARE_ARGUMENTS, SHARE), [TensorDescriptor(x, (4, 8)), TensorDescriptor(y, (4, 8))], (1,))
    assert e.code == "multicast-mask" and "0b11 of a cluster of 1" in e.message


def test_grid_that_clusters_do_not_fit() -> None:
    x, y = np.zeros((24, 8), np.float32), np.zeros((48, 8), np.float32)
    with pytest.raises(TypeError, match=r"clusters of \(2, 1, 1\)"):
        run(
            kernel(SHARE_ARGUMENTS, SHARE),
            [TensorDescriptor(x, (4, 8)), TensorDescriptor(y, (4, 8))],
            (3,),
            cluster=(2,),
        )


# Each CTA sends its number to the next one of the cluster, in one of three ways.
NEIGHBOUR = """
%zero = arith.constant {value = 0} : i32
%one = arith.constant {value = 1} : i32
%size = cluster.size : i32
%rank = cluster.cta_rank : i32
%next0 = arith.add %rank, %one : i32
%next = arith.rem %next0, %size : i32
%buf = memory.local_alloc : memdesc<4xi32, shared>
%own = memory.local_alloc : memdesc<4xi32, shared>
%bars = barrier.alloc : barrier<1, arrive ARRIVE>
%bar = barrier.view %bars, %zero : barrier<0, arrive ARRIVE>
%v = tensor.splat %rank {shape = [4]} : tensor<4xi32>
memory.local_store %own, %v
SEND
barrier.wait %bar, %zero
%got = memory.local_load %buf : tensor<4xi32>
%sum = tensor.reduce %got {axis = 0} combine(%s: i32, %t: i32) {
  %u = arith.add %s, %t : i32
  control.yield %u
} : i32
%at = memory.ptr_add %y, %rank : ptr<i32>
memory.store %at, %sum
cluster.sync
"""
SENDS = {
    "store": """cluster.remote_store %buf, %v, %next
%there = barrier.remote_view %bar, %next : barrier<0, arrive 1, remote>
barrier.arrive %there""",
    "async_store": "barrier.expect %bar {bytes = 16}\ncluster.async_remote_store %buf, %v, %next, %bar",
    "copy": "barrier.expect %bar {bytes = 16}\ncluster.async_remote_copy %buf, %own, %next, %bar",
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", SENDS)
def test_shared_memory_of_the_neighbour(way: str, seed: int) -> None:
    y = np.zeros(4, np.int32)
    text = NEIGHBOUR.replace("SEND", SENDS[way]).replace("ARRIVE", "1")
    run(kernel("%y: ptr<i32>", text), [y], (4,), cluster=(4,), seed=seed)
    assert y.tolist() == [12, 0, 4, 8]


def test_a_rank_beyond_the_cluster() -> None:
    text = (
        NEIGHBOUR.replace("SEND", SENDS["store"])
        .replace("ARRIVE", "1")
        .replace("%next = arith.rem %next0", "%next = arith.add %next0")
    )
    e = fault(kernel("%y: ptr<i32>", text), [np.zeros(4, np.int32)], (2,), cluster=(2,))
    assert e.code == "cluster-rank" and e.loc is not None and e.loc.line == line_of(text, "cluster.remote_store")


def test_cluster_barrier_that_one_cta_never_reaches() -> None:
    text = """%zero = arith.constant {value = 0} : i32
%rank = cluster.cta_rank : i32
%first = arith.eq %rank, %zero : i1
%b = barrier.alloc : barrier<1, arrive 1>
%b0 = barrier.view %b, %zero : barrier<0, arrive 1>
barrier.wait %b0, %zero, pred = %first
cluster.sync"""
    e = fault(kernel("", text), [], (2,), cluster=(2,))
    assert e.code == "deadlock" and "waits for the cluster's barrier: 1 of 2 tasks" in e.message


# -- views of buffers ------------------------------------------------------------------------------------------------------

VIEWS = """
%zero = arith.constant {value = 0} : i32
%two = arith.constant {value = 2} : i32
%r = tensor.arange {start = 0, end = 32} : tensor<32xi32>
%t = tensor.reshape %r {shape = [4, 8]} : tensor<4x8xi32>
%buf = memory.local_alloc src = %t : memdesc<4x8xi32, shared>
VIEW
%flat = tensor.reshape %v {shape = [8]} : tensor<8xi32>
%eight = tensor.arange {start = 0, end = 8} : tensor<8xi32>
%ys = tensor.splat %y {shape = [8]} : tensor<8xptr<i32>>
%p = memory.ptr_add %ys, %eight : tensor<8xptr<i32>>
memory.store %p, %flat
"""


@pytest.mark.parametrize(
    ("view", "want"),
    [
        (
            "%s = memory.local_slice %buf, [%n, %two] {shape = [2, 4]} : memdesc<2x4xi32, shared, alloc 4x8>\n"
            "%v = memory.local_load %s : tensor<2x4xi32>",
            [10, 11, 12, 13, 18, 19, 20, 21],
        ),
        (
            "%i = arith.constant {value = 3} : tensor<1x8xi32>\n%v = memory.local_gather %buf, %i {axis = 0} : tensor<1x8xi32>",
            [24, 25, 26, 27, 28, 29, 30, 31],
        ),
        (
            "%i = arith.constant {value = 7} : tensor<4x2xi32>\n%v = memory.local_gather %buf, %i {axis = 1} : tensor<4x2xi32>",
            [7, 7, 15, 15, 23, 23, 31, 31],
        ),
        (
            "%i = arith.constant {value = 2} : tensor<1x8xi32>\n%c = arith.constant {value = -1} : tensor<1x8xi32>\n"
            "memory.local_scatter %buf, %c, %i {axis = 0}\n"
            "%s = memory.local_slice %buf, [%n, %zero] {shape = [2, 4]} : memdesc<2x4xi32, shared, alloc 4x8>\n"
            "%v = memory.local_load %s : tensor<2x4xi32>",
            [8, 9, 10, 11, -1, -1, -1, -1],
        ),
    ],
)
def test_views(view: str, want: list[int]) -> None:
    y = np.zeros(8, np.int32)
    run(kernel("%y: ptr<i32>, %n: i32", VIEWS.replace("VIEW", view)), [y, 1], (1,))
    assert y.tolist() == want


def test_views_out_of_range() -> None:
    text = VIEWS.replace(
        "VIEW",
        "%s = memory.local_slice %buf, [%n, %two] {shape = [2, 4]} : memdesc<2x4xi32, shared, alloc 4x8>\n"
        "%v = memory.local_load %s : tensor<2x4xi32>",
    )
    for n in (-1, 3):
        e = fault(kernel("%y: ptr<i32>, %n: i32", text), [np.zeros(8, np.int32), n])
        assert e.code == "slice-out-of-range" and f"[2, 4] elements from [{n}, 2] of buf, which has [4, 8]" in e.message
    text = VIEWS.replace(
        "VIEW",
        "%i = tensor.splat %n {shape = [1, 8]} : tensor<1x8xi32>\n%v = memory.local_gather %buf, %i {axis = 0} : tensor<1x8xi32>",
    )
    e = fault(kernel("%y: ptr<i32>, %n: i32", text), [np.zeros(8, np.int32), 4])
    assert (
        e.code == "index-out-of-range" and "index 4 (element [0, 0]) along dimension 0 of buf, which has 4" in e.message
    )


# -- atomics ---------------------------------------------------------------------------------------------------------------

RMW = """
%r = tensor.arange {start = 0, end = 8} : tensor<8xi32>
%xs = tensor.splat %x {shape = [8]} : tensor<8xptr<T>>
%three = arith.constant {value = 3} : tensor<8xi32>
%at = arith.and %r, %three : tensor<8xi32>
%p = memory.ptr_add %xs, %at : tensor<8xptr<T>>
%vs = tensor.splat %v {shape = [8]} : tensor<8xptr<T>>
%vp = memory.ptr_add %vs, %r : tensor<8xptr<T>>
%new = memory.load %vp : tensor<8xT>
%six = arith.constant {value = 6} : tensor<8xi32>
%on = arith.lt %r, %six : tensor<8xi1>
%old = atomic.rmw %p, %new, mask = %on {kind = "KIND"} : tensor<8xT>
%os = tensor.splat %o {shape = [8]} : tensor<8xptr<T>>
%op = memory.ptr_add %os, %r : tensor<8xptr<T>>
memory.store %op, %old
"""


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("i32", k) for k in ("add", "max", "min", "and", "or", "xor", "xchg")]
    + [("f32", k) for k in ("add", "max", "min", "xchg")],
)
def test_atomics_one_element_after_another(dtype: str, kind: str) -> None:
    step: dict[str, Any] = {
        "add": lambda a, b: a + b,
        "max": max,
        "min": min,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "xchg": lambda a, b: b,
    }
    numpy = np.int32 if dtype == "i32" else np.float32
    x, v, o = np.array([5, -3, 100, 7], numpy), np.array([1, 12, 3, 9, 8, -77, 4, 4], numpy), np.full(8, 9, numpy)
    want, olds = x.copy(), np.zeros(8, numpy)
    for i in range(6):
        olds[i] = want[i & 3]
        want[i & 3] = step[kind](want[i & 3], v[i])
    run(
        kernel("%x: ptr<T>, %v: ptr<T>, %o: ptr<T>".replace("T", dtype), RMW.replace("T", dtype).replace("KIND", kind)),
        [x, v, o],
        (1,),
    )
    assert x.tolist() == want.tolist() and o.tolist() == olds.tolist()


# CTA i waits until CTA i + 1 has had its turn.
LOCK = """
%one = arith.constant {value = 1} : i32
%pid = control.program_id {axis = 0} : i32
%n = control.num_programs {axis = 0} : i32
%m = arith.sub %n, %one : i32
%turn = arith.sub %m, %pid : i32
%after = arith.add %turn, %one : i32
control.while condition {
  %was = atomic.cas %x, %turn, %after : i32
  %wait = arith.ne %was, %turn : i1
  control.yield %wait
} body {
  control.yield
}
%at = memory.ptr_add %y, %turn : ptr<i32>
memory.store %at, %pid
"""


@pytest.mark.parametrize("seed", range(4))
def test_ctas_that_wait_for_each_other_run_side_by_side(seed: int) -> None:
    x, y = np.zeros(1, np.int32), np.full(9, -1, np.int32)
    run(kernel("%x: ptr<i32>, %y: ptr<i32>", LOCK), [x, y], (9,), seed=seed)
    assert x.tolist() == [9] and y.tolist() == [8, 7, 6, 5, 4, 3, 2, 1, 0]


def test_element_order_of_many_atomics_on_one_address() -> None:
    text = """%r = tensor.arange {start = 0, end = 64} : tensor<64xi32>
%one = arith.constant {value = 1} : tensor<64xi32>
%xs = tensor.splat %x {shape = [64]} : tensor<64xptr<i32>>
%old = atomic.rmw %xs, %one {kind = "add"} : tensor<64xi32>
%os = tensor.splat %o {shape = [64]} : tensor<64xptr<i32>>
%p = memory.ptr_add %os, %r : tensor<64xptr<i32>>
memory.store %p, %old"""
    x, o = np.zeros(1, np.int32), np.zeros(64, np.int32)
    run(kernel("%x: ptr<i32>, %o: ptr<i32>", text), [x, o], (1,))
    assert x.tolist() == [64]
    assert o.tolist() == list(range(64))
