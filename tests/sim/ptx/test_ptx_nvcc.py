"""PTX that nvcc makes from small CUDA C++ kernels: proof that the simulator reads the ISA as another compiler writes it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.run import run_ptx

SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
extern "C" __global__ void vadd(const float* x, const float* y, float* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}
extern "C" __global__ void softmax(const float* x, float* y, int n) {
  __shared__ float part[4];
  const float* row = x + (size_t)blockIdx.x * n; float* out = y + (size_t)blockIdx.x * n;
  float m = -INFINITY, s = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) m = fmaxf(m, row[i]);
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, o));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = m;
  __syncthreads();
  m = fmaxf(fmaxf(part[0], part[1]), fmaxf(part[2], part[3]));
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) s += expf(row[i] - m);
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  s = part[0] + part[1] + part[2] + part[3];
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = expf(row[i] - m) / s;
}
extern "C" __global__ void layernorm(const __nv_bfloat16* x, const float* w, const float* b, __nv_bfloat16* y, int n, float eps) {
  __shared__ float p1[4], p2[4];
  const __nv_bfloat16* row = x + (size_t)blockIdx.x * n;
  float s = 0, q = 0;
  for (int i = threadIdx.x; i < n; i += 128) { float v = __bfloat162float(row[i]); s += v; q += v * v; }
  for (int o = 16; o; o >>= 1) { s += __shfl_down_sync(0xffffffffu, s, o); q += __shfl_down_sync(0xffffffffu, q, o); }
  if (threadIdx.x % 32 == 0) { p1[threadIdx.x / 32] = s; p2[threadIdx.x / 32] = q; }
  __syncthreads();
  s = p1[0] + p1[1] + p1[2] + p1[3]; q = p2[0] + p2[1] + p2[2] + p2[3];
  float mean = s / n, r = rsqrtf(q / n - mean * mean + eps);
  for (int i = threadIdx.x; i < n; i += 128)
    y[(size_t)blockIdx.x * n + i] = __float2bfloat16((__bfloat162float(row[i]) - mean) * r * w[i] + b[i]);
}
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float as[16][16], bs[16][17];
  int r = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float acc = 0;
  for (int t = 0; t < (k + 15) / 16; t++) {
    int kk = t * 16 + threadIdx.x, kr = t * 16 + threadIdx.y;
    as[threadIdx.y][threadIdx.x] = r < m && kk < k ? a[r * k + kk] : 0.f;
    bs[threadIdx.y][threadIdx.x] = kr < k && col < n ? b[kr * n + col] : 0.f;
    __syncthreads();
    for (int i = 0; i < 16; i++) acc += as[threadIdx.y][i] * bs[i][threadIdx.x];
#ifndef RACE
    __syncthreads();
#endif
  }
  if (r < m && col < n) c[r * n + col] = acc;
}
extern "C" __global__ void histogram(const unsigned char* x, unsigned* h, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&h[i], local[i]);
}
__constant__ int table[5] = {3, -1, 4, 1, -5};
extern "C" __global__ void integers(const int* x, const long long* y, int* o, long long* p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int tmp[8];
  for (int j = 0; j < 8; j++) tmp[(x[i] + j) & 7] = x[i] * j + table[(unsigned)(x[i] + j) % 5];
  int v = 0;
  for (int j = 0; j < 8; j++) { if (tmp[j] % 7 == 3) continue; v ^= tmp[j] << j; if (v < -1000000000) break; }
  o[i] = v + __clz(x[i]) + __popc(x[i]) + __brev(x[i]) + __ffs(x[i]);
  long long q = y[i] / (x[i] | 1), r = y[i] % 1000003;
  p[i] = q ^ __mul64hi(y[i], r * 0x123456789abLL);
}
__device__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void tensor_tile(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int k) {
  // One warp, 16x8 outputs (B is [n][k]), operands staged by asynchronous copies, fragments by ldmatrix.
  __shared__ __align__(16) __nv_bfloat16 as[2][16 * 16], bs[2][8 * 16];
  int lane = threadIdx.x, row = lane / 2, part = lane % 2 * 8;
  auto stage = [&](int t) {
    __pipeline_memcpy_async(&as[t % 2][row * 16 + part], a + row * k + t * 16 + part, 16);
    if (row < 8) __pipeline_memcpy_async(&bs[t % 2][row * 16 + part], b + row * k + t * 16 + part, 16);
  };
  float d[4] = {};
  stage(0);
  __pipeline_commit();
  for (int t = 0; t < k / 16; t++) {
    if (t + 1 < k / 16) stage(t + 1);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncwarp();
    unsigned fa[4], fb[2];
    unsigned at = shared_address(&as[t % 2][(lane % 16) * 16 + lane / 16 * 8]), bt = shared_address(&bs[t % 2][lane % 8 * 16 + lane / 8 % 2 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(at) : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(fb[0]), "=r"(fb[1]) : "r"(bt) : "memory");
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
    __syncwarp();
  }
  for (int i = 0; i < 4; i++) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}
"""

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")


def compile_text(folder: Path, *flags: str, source: str = SOURCE) -> str:
    (folder / "k.cu").write_text(source)
    command = ["nvcc", "-arch=sm_90a", "-ptx", *flags, str(folder / "k.cu"), "-o", str(folder / "k.ptx")]
    subprocess.run(command, check=True, capture_output=True)
    return (folder / "k.ptx").read_text()


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_text(tmp_path_factory.mktemp("nvcc"))


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_vector_add(ptx: str) -> None:
    x, y, z = (
        rng().standard_normal(1000, np.float32),
        rng().standard_normal(1000, np.float32),
        np.zeros(1000, np.float32),
    )
    run_ptx(ptx, "vadd", (8, 1, 1), [x, y, z, 1000], block=(128, 1, 1))
    assert (z == x + y).all()
    with pytest.raises(SimulationError, match="outside every allocation"):
        run_ptx(ptx, "vadd", (8, 1, 1), [x, y, z, 1001], block=(128, 1, 1))


def test_softmax(ptx: str) -> None:
    x = rng().standard_normal((5, 300), np.float32)
    y = np.zeros_like(x)
    run_ptx(ptx, "softmax", (5, 1, 1), [x, y, 300], block=(128, 1, 1))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-9)


def test_layernorm(ptx: str) -> None:
    x = rng().standard_normal((5, 300)).astype(ml_dtypes.bfloat16)
    w, b, y = rng().standard_normal(300, np.float32), rng().standard_normal(300, np.float32), np.zeros_like(x)
    run_ptx(ptx, "layernorm", (5, 1, 1), [x, w, b, y, 300, 1e-5], block=(128, 1, 1))
    f = x.astype(np.float64)
    want = (f - f.mean(1, keepdims=True)) / np.sqrt(f.var(1, keepdims=True) + 1e-5) * w + b
    assert np.allclose(y.astype(np.float64), want, rtol=2.0**-8, atol=1e-3)


def test_shared_memory_matmul(ptx: str) -> None:
    a, b, c = (
        rng().standard_normal((50, 70), np.float32),
        rng().standard_normal((70, 45), np.float32),
        np.zeros((50, 45), np.float32),
    )
    run_ptx(ptx, "matmul", (3, 4, 1), [a, b, c, 50, 45, 70], block=(16, 16, 1))
    assert np.allclose(c, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-4)


def test_shared_memory_matmul_without_its_second_barrier(tmp_path: Path) -> None:
    text = compile_text(tmp_path, "-DRACE")
    args = [np.zeros((16, 32), np.float32), np.zeros((32, 16), np.float32), np.zeros((16, 16), np.float32), 16, 16, 32]
    with pytest.raises(SimulationError, match="race"):
        run_ptx(text, "matmul", (1, 1, 1), args, block=(16, 16, 1))


def test_histogram_with_atomics(ptx: str) -> None:
    x, h = rng().integers(0, 256, 5000).astype(np.uint8), np.zeros(256, np.uint32)
    run_ptx(ptx, "histogram", (4, 1, 1), [x, h, 5000], block=(100, 1, 1))
    assert (h == np.bincount(x, minlength=256)).all()


def test_tensor_core_tile_with_cp_async(ptx: str) -> None:
    a = rng().standard_normal((16, 64)).astype(ml_dtypes.bfloat16)
    b = rng().standard_normal((8, 64)).astype(ml_dtypes.bfloat16)
    c = np.zeros((16, 8), np.float32)
    run_ptx(ptx, "tensor_tile", (1, 1, 1), [a, b, c, 64], block=(32, 1, 1))
    assert np.allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, atol=1e-4)
    with pytest.raises(SimulationError, match=r"cp\.async"):
        text = ptx.replace("cp.async.wait_group 1", "cp.async.wait_group 2")
        run_ptx(text, "tensor_tile", (1, 1, 1), [a, b, c, 64], block=(32, 1, 1))


def s32(v: int) -> int:
    return (v & 0xFFFFFFFF) - ((v & 0x80000000) << 1)


def modulo(a: int, b: int) -> int:
    return abs(a) % abs(b) * (1 if a >= 0 else -1)


def test_integer_code(ptx: str) -> None:
    x = rng().integers(-(2**31), 2**31, 400).astype(np.int32)
    y = rng().integers(-(2**63), 2**63 - 1, 400)
    o, p = np.zeros(400, np.int32), np.zeros(400, np.int64)
    run_ptx(ptx, "integers", (4, 1, 1), [x, y, o, p, 400], block=(128, 1, 1))
    table = [3, -1, 4, 1, -5]
    for xi, yi, oi, pi in zip(x.tolist(), y.tolist(), o.tolist(), p.tolist(), strict=False):
        tmp = [0] * 8
        for j in range(8):
            tmp[xi + j & 7] = s32(s32(xi * j) + table[(xi + j & 0xFFFFFFFF) % 5])
        v, u = 0, xi & 0xFFFFFFFF
        for j in range(8):
            if modulo(tmp[j], 7) == 3:
                continue
            v ^= s32(tmp[j] << j)
            if v < -1000000000:
                break
        assert oi == s32(v + 32 - u.bit_length() + u.bit_count() + int(f"{u:032b}"[::-1], 2) + (u & -u).bit_length())
        quotient = abs(yi) // abs(xi | 1) * (1 if (yi < 0) == ((xi | 1) < 0) else -1)
        rest = (modulo(yi, 1000003) * 0x123456789AB + 2**63) % 2**64 - 2**63
        high = yi * rest >> 64
        assert pi == ((quotient ^ high) + 2**63) % 2**64 - 2**63
