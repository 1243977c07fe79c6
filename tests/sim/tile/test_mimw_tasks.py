"""Tasks, barriers and copies that run side by side: the same results under every schedule."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.sim.tile import TensorDescriptor, run
from tests.sim.tile.mimw_programs import RING, RING_ARGUMENTS, kernel


def blocks(array: np.ndarray, *block: int, **kwargs: object) -> TensorDescriptor:
    return TensorDescriptor(array, block, **kwargs)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 9])
def test_ring_of_a_producer_and_a_consumer(trips: int, seed: int) -> None:
    x = np.random.default_rng(1).standard_normal((72, 8)).astype(np.float32)
    y = np.full((72, 8), -7, np.float32)
    run(kernel(RING_ARGUMENTS, RING), [blocks(x, 8, 8), blocks(y, 8, 8), trips], (1,), seed=seed)
    assert np.array_equal(y[: 8 * trips], 2 * x[: 8 * trips])
    assert (y[8 * trips :] == -7).all()


def test_several_ctas_each_with_tasks() -> None:
    x = np.arange(24 * 8, dtype=np.float32).reshape(24, 8)
    y = np.zeros((24, 8), np.float32)
    warnings = run(kernel(RING_ARGUMENTS, RING), [blocks(x, 8, 8), blocks(y, 8, 8), 3], (5,)).warnings
    assert np.array_equal(y, 2 * x) and warnings == []


# -- named barriers ----------------------------------------------------------------------------------------------------

# Two tasks take turns to append to a list in global memory: even entries by one, odd ones by the other.
PING_PONG = """
%zero = arith.constant {value = 0} : i32
%one = arith.constant {value = 1} : i32
%two = arith.constant {value = 2} : i32
%n0 = memory.ptr_add %list, %zero : ptr<i32>
task.partition {tasks = ["default/4/0/-1/0", "pong/4/0/-1/0"]} bodies {
  control.for %zero, %n, %one, [] body(%i: i32) {
    barrier.named_wait {count = 256, number = 1}
    %k = memory.load %n0 : i32
    %k1 = arith.add %k, %one : i32
    %at = memory.ptr_add %list, %k1 : ptr<i32>
    memory.store %at, %one
    memory.store %n0, %k1
    barrier.named_arrive {count = 256, name_hint = "pong"}
    control.yield
  }
  control.yield
} bodies {
  barrier.named_arrive {count = 256, number = 1}
  control.for %one, %n, %one, [] body(%i: i32) {
    barrier.named_wait {count = 256, name_hint = "pong"}
    %k = memory.load %n0 : i32
    %k1 = arith.add %k, %one : i32
    %at = memory.ptr_add %list, %k1 : ptr<i32>
    memory.store %at, %two
    memory.store %n0, %k1
    barrier.named_arrive {count = 256, number = 1}
    control.yield
  }
  control.yield
}
"""


@pytest.mark.parametrize("seed", range(12))
def test_ping_pong_with_named_barriers(seed: int) -> None:
    numbers = np.zeros(16, np.int32)
    run(kernel("%list: ptr<i32>, %n: i32", PING_PONG), [numbers, 4], (1,), seed=seed)
    assert numbers[:8].tolist() == [7, 1, 2, 1, 2, 1, 2, 1]


# -- barriers ----------------------------------------------------------------------------------------------------------

PER_THREAD = """
%zero = arith.constant {value = 0} : i32
%one = arith.constant {value = 1} : i32
%off = arith.constant {value = false} : i1
%bars = barrier.alloc {per_thread = true} : barrier<3, arrive 192>
%bar = barrier.view %bars, %one : barrier<0, arrive 192>
task.partition {tasks = ["default/4/0/-1/0", "worker/2/0/-1/0", "worker/4/0/-1/1"]} bodies {
  barrier.wait %bar, %zero
  barrier.wait %bar, %zero, pred = %off
  %v = memory.load %x : i32
  memory.store %y, %v
  control.yield
} bodies {
  %r = task.replica_id : i32
  %p = memory.ptr_add %x, %r : ptr<i32>
  %r5 = arith.add %r, %one : i32
  memory.store %p, %r5
  barrier.arrive %bar, pred = %off
  barrier.arrive %bar
  control.yield
} bodies {
  %r = task.replica_id : i32
  %p = memory.ptr_add %x, %r : ptr<i32>
  memory.store %p, %r
  barrier.arrive %bar
  control.yield
}
"""


@pytest.mark.parametrize("seed", range(6))
def test_threads_arrive_by_themselves_and_replicas_know_their_number(seed: int) -> None:
    x, y = np.zeros(2, np.int32), np.zeros(1, np.int32)
    run(kernel("%x: ptr<i32>, %y: ptr<i32>", PER_THREAD), [x, y], (1,), seed=seed)
    assert x.tolist() == [1, 1] and y.tolist() == [1]


# -- a product through a ring, by two consumers -------------------------------------------------------------------------

GEMM = """
%zero = arith.constant {value = 0} : i32
%one = arith.constant {value = 1} : i32
%three = arith.constant {value = 3} : i32
%k16 = arith.constant {value = 16} : i32
%m64 = arith.constant {value = 64} : i32
%none = arith.constant {value = 0.0} : tensor<64x32xf32>
%as = memory.local_alloc : memdesc<3x128x16xf16, shared>
%bs = memory.local_alloc : memdesc<3x16x32xf16, shared>
%cs = memory.local_alloc : memdesc<2x64x32xf16, shared>
%full = barrier.alloc : barrier<3, arrive 1>
%empty = barrier.alloc : barrier<3, arrive 2>
task.partition {tasks = ["default/4/0/-1/0", "consumer/4/0/-1/0", "consumer/4/0/-1/1"]} bodies {
  control.for %zero, %n, %one, [] body(%i: i32) {
    %slot = arith.rem %i, %three : i32
    %trip = arith.div %i, %three : i32
    %phase = arith.add %trip, %one : i32
    %f = barrier.view %full, %slot : barrier<0, arrive 1>
    %e = barrier.view %empty, %slot : barrier<0, arrive 2>
    %sa = memory.local_view %as, %slot : memdesc<128x16xf16, shared, alloc 3x128x16>
    %sb = memory.local_view %bs, %slot : memdesc<16x32xf16, shared, alloc 3x16x32>
    barrier.wait %e, %phase
    barrier.expect %f {bytes = 5120}
    %k = arith.mul %i, %k16 : i32
    async_copy.tma_load %a, %sa, %f, [%zero, %k]
    async_copy.tma_load %b, %sb, %f, [%k, %zero]
    control.yield
  }
  control.yield
} CONSUMER CONSUMER
"""
CONSUMER = """bodies {
  %r = task.replica_id : i32
  %m = arith.mul %r, %m64 : i32
  %start = mma.as_inflight %none : inflight<tensor<64x32xf32>>
  %last = control.for %zero, %n, %one, [%start] body(%i: i32, %acc: inflight<tensor<64x32xf32>>) {
    %slot = arith.rem %i, %three : i32
    %phase = arith.div %i, %three : i32
    %f = barrier.view %full, %slot : barrier<0, arrive 1>
    %sa = memory.local_view %as, %slot : memdesc<128x16xf16, shared, alloc 3x128x16>
    %half = memory.local_slice %sa, [%m, %zero] {shape = [64, 16]} : memdesc<64x16xf16, shared, alloc 3x128x16>
    %sb = memory.local_view %bs, %slot : memdesc<16x32xf16, shared, alloc 3x16x32>
    barrier.wait %f, %phase
    %next = mma.async_dot %half, %sb, %acc : inflight<tensor<64x32xf32>>
    %kept = mma.async_dot_wait %next {pendings = PENDINGS} : inflight<tensor<64x32xf32>>
    %before = arith.sub %i, %one : i32
    %some = arith.ge %before, %zero : i1
    %safe = arith.maxnum %before, %zero : i32
    %old = arith.rem %safe, %three : i32
    %e = barrier.view %empty, %old : barrier<0, arrive 2>
    barrier.arrive %e, pred = %some
    control.yield %kept
  } : inflight<tensor<64x32xf32>>
  %sum = mma.async_dot_wait %last {pendings = 0} : tensor<64x32xf32>
  %short = arith.cast %sum {dtype = f16} : tensor<64x32xf16>
  %mine = memory.local_view %cs, %r : memdesc<64x32xf16, shared, alloc 2x64x32>
  memory.local_store %mine, %short
  barrier.fence_async_shared
  async_copy.tma_store %c, %mine, [%m, %zero]
  control.yield
}"""
GEMM_ARGUMENTS = "%a: tensor_desc<128x16xf16>, %b: tensor_desc<16x32xf16>, %c: tensor_desc<64x32xf16>, %n: i32"


def gemm_text(pendings: int = 1) -> str:
    return GEMM.replace("CONSUMER", CONSUMER.replace("PENDINGS", str(pendings)))


@pytest.mark.parametrize("seed", range(50))
def test_product_through_a_ring_by_two_consumers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    trips = seed % 8
    k = max(8, 16 * trips - 8)  # the last block hangs over the edge
    a, b = rng.standard_normal((100, k)).astype(np.float16), rng.standard_normal((k, 32)).astype(np.float16)
    c = np.zeros((100, 32), np.float16)
    module = kernel(GEMM_ARGUMENTS, gemm_text())
    result = run(module, [blocks(a, 128, 16), blocks(b, 16, 32), blocks(c, 64, 32), trips], (1,), seed=seed)
    want = (a.astype(np.float64) @ b.astype(np.float64)) if trips else np.zeros((100, 32))
    assert np.allclose(c.astype(np.float64), want, atol=1e-5, rtol=2**-10)
    assert result.warnings == []
