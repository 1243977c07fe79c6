"""Matrix instructions against products computed element by element with the layouts of AMD's matrix instruction calculator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.sim.amdgcn.programs import execute

F16, BF16, F32, F64 = np.float16, ml_dtypes.bfloat16, np.float32, np.float64
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
E4M3Z, E5M2Z = ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz
BOTH = ("gfx942", "gfx950")


def numbers(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return (
        rng.integers(-100, 100, shape).astype(np.int8) if dtype is np.int8 else rng.standard_normal(shape).astype(dtype)
    )


def registers(lanes: Any) -> Any:
    """(64, elements) to (registers, 64) uint32."""
    return np.ascontiguousarray(np.ascontiguousarray(lanes).view(np.uint8).reshape(64, -1).view(np.uint32).T)


def source(matrix: Any, blocks: int) -> Any:
    """(blocks, rows, K) as the lanes hold it: rows, then groups of K, then blocks, each with consecutive elements of K."""
    rows, k = matrix.shape[1:]
    groups = 64 // (rows * blocks)
    per = k // groups
    out = np.zeros((64, per), matrix.dtype)
    for lane in range(64):
        row, group, block = lane % rows, lane // rows % groups, lane // (rows * groups)
        out[lane] = matrix[block, row, group * per : (group + 1) * per]
    return registers(out)


def result(raw: Any, m: int, n: int, blocks: int, dtype: Any) -> Any:
    """(blocks, M, N) from the result registers."""
    out = np.zeros((blocks, m, n), dtype)
    values = raw.view(dtype)
    for lane in range(64):
        for r in range(len(values)):
            row = r // 4 * (4 * 64 // n) + 4 * (lane // n) + r % 4
            out[row // m, row % m, lane % n] = values[r, lane]
    return out


MFMA = [
    ("f32_32x32x8_f16", F16, F16, 1, BOTH),
    ("f32_16x16x16_f16", F16, F16, 1, BOTH),
    ("f32_32x32x4_2b_f16", F16, F16, 2, BOTH),
    ("f32_16x16x4_4b_f16", F16, F16, 4, BOTH),
    ("f32_4x4x4_16b_f16", F16, F16, 16, BOTH),
    ("f32_32x32x8_bf16", BF16, BF16, 1, BOTH),
    ("f32_16x16x16_bf16", BF16, BF16, 1, BOTH),
    ("f32_4x4x4_16b_bf16", BF16, BF16, 16, BOTH),
    ("f32_32x32x2_f32", F32, F32, 1, BOTH),
    ("f32_16x16x4_f32", F32, F32, 1, BOTH),
    ("f32_32x32x1_2b_f32", F32, F32, 2, BOTH),
    ("f32_16x16x1_4b_f32", F32, F32, 4, BOTH),
    ("f32_4x4x1_16b_f32", F32, F32, 16, BOTH),
    ("i32_32x32x16_i8", np.int8, np.int8, 1, BOTH),
    ("i32_16x16x32_i8", np.int8, np.int8, 1, BOTH),
    ("i32_32x32x4_2b_i8", np.int8, np.int8, 2, BOTH),
    ("i32_4x4x4_16b_i8", np.int8, np.int8, 16, BOTH),
    ("f32_32x32x16_fp8_fp8", E4M3Z, E4M3Z, 1, ("gfx942",)),
    ("f32_32x32x16_bf8_fp8", E5M2Z, E4M3Z, 1, ("gfx942",)),
    ("f32_16x16x32_fp8_bf8", E4M3, E5M2, 1, ("gfx950",)),
    ("f32_16x16x32_bf8_bf8", E5M2, E5M2, 1, ("gfx950",)),
    ("f32_32x32x16_f16", F16, F16, 1, ("gfx950",)),
    ("f32_16x16x32_bf16", BF16, BF16, 1, ("gfx950",)),
    ("i32_32x32x32_i8", np.int8, np.int8, 1, ("gfx950",)),
    ("i32_16x16x64_i8", np.int8, np.int8, 1, ("gfx950",)),
]
CASES = [(name, a, b, blocks, arch) for name, a, b, blocks, archs in MFMA for arch in archs]


@pytest.mark.parametrize("accumulator", ["v", "a"])
@pytest.mark.parametrize(("name", "ta", "tb", "blocks", "arch"), CASES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_mfma(name: str, ta: Any, tb: Any, blocks: int, arch: str, accumulator: str) -> None:
    m, n, k = (int(v) for v in name.split("_")[1].split("x"))
    a, b = numbers((blocks, m, k), ta, 1), numbers((blocks, n, k), tb, 2)
    ra, rb = source(a, blocks), source(b, blocks)
    out = m * n * blocks // 64
    integer = name.startswith("i32")
    c = np.full((out, 64), 7, np.int32) if integer else np.full((out, 64), 0.5, F32)
    place = {"v": 100, "a": 8}[accumulator]
    high_a, high_b = 1 + len(ra), 1 + len(ra) + len(rb)
    moves, back = [], []
    if accumulator == "a":
        moves = [f"v_accvgpr_write_b32 a{8 + r}, v{40 + r}" for r in range(out)]
        back = [f"v_accvgpr_read_b32 v{100 + r}, a{8 + r}" for r in range(out)]
    registers_c = 100 if accumulator == "v" else 40

    def span(file: str, first: int, count: int) -> str:
        return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"

    d = span(accumulator, place, out)
    body = [*moves, "s_nop 1", f"v_mfma_{name} {d}, {span('v', 1, len(ra))}, {span('v', high_a, len(rb))}, {d}"]
    body += ["s_nop 15", "s_nop 3", *back]
    assert high_b <= 40
    got = execute("\n".join(body), {1: ra, high_a: rb, registers_c: c}, out=out, arch=arch)
    want = np.einsum("bik,bjk->bij", a.astype(F64), b.astype(F64)) + (7 if integer else 0.5)
    values = result(got, m, n, blocks, np.int32 if integer else F32)
    assert np.allclose(values, want, rtol=1e-6, atol=0 if integer else 1e-5)


@pytest.mark.parametrize("arch", BOTH)
def test_f64(arch: str) -> None:
    a, b = numbers((16, 4), F64, 1), numbers((16, 4), F64, 2)
    # One element a lane: row l % 16, k = l / 16.
    ra, rb = (registers(np.ascontiguousarray(v.T).reshape(64, 1)) for v in (a, b))
    body = "v_mfma_f64_16x16x4_f64 v[100:107], v[2:3], v[4:5], 0\n s_nop 15\n s_nop 15"
    got = execute(body, {2: ra, 4: rb}, out=8, arch=arch)
    want = a @ b.T
    for lane in range(64):
        for r in range(4):
            value = np.array([got[2 * r, lane], got[2 * r + 1, lane]], np.uint32).view(F64)[0]
            assert value == pytest.approx(want[lane // 16 + 4 * r, lane % 16], rel=1e-14, abs=1e-14)


def test_xf32_rounds_its_sources() -> None:
    a, b = numbers((1, 16, 8), F32, 1), numbers((1, 16, 8), F32, 2)
    body = "v_mfma_f32_16x16x8_xf32 v[100:103], v[2:3], v[4:5], 0\n s_nop 15"
    values = result(execute(body, {2: source(a, 1), 4: source(b, 1)}, out=4), 16, 16, 1, F32)[0]
    want = a[0].astype(F64) @ b[0].astype(F64).T
    assert 0 < np.abs(values - want).max() < 8 * 9 * 2.0**-10


def test_constant_accumulator_and_exec_is_ignored() -> None:
    a, b = numbers((1, 32, 8), F16, 1), numbers((1, 32, 8), F16, 2)
    body = """
        s_mov_b64 exec, 1
        v_mfma_f32_32x32x8_f16 v[100:115], v[2:3], v[4:5], 1.0
        s_mov_b64 exec, -1
        s_nop 15
    """
    values = result(execute(body, {2: source(a, 1), 4: source(b, 1)}, out=16), 32, 32, 1, F32)[0]
    assert np.allclose(values, a[0].astype(F64) @ b[0].astype(F64).T + 1, atol=1e-5)


@pytest.mark.parametrize(("cbsz", "abid"), [(1, 0), (1, 1), (2, 3)])
def test_broadcast_of_blocks(cbsz: int, abid: int) -> None:
    a, b = numbers((4, 16, 4), F16, 1), numbers((4, 16, 4), F16, 2)
    body = f"v_mfma_f32_16x16x4_4b_f16 v[100:115], v[2:3], v[4:5], 0 cbsz:{cbsz} abid:{abid}\n s_nop 15\n s_nop 3"
    values = result(execute(body, {2: source(a, 4), 4: source(b, 4)}, out=16), 16, 16, 4, F32)
    for block in range(4):
        used = a[block >> cbsz << cbsz | abid]
        assert np.allclose(values[block], used.astype(F64) @ b[block].astype(F64).T, atol=1e-5)


def test_sparse_products() -> None:
    """Two of every four elements of A: their places stand in an index register, two bits each."""
    rng = np.random.default_rng(4)
    dense = np.zeros((16, 32), F16)
    kept, index = np.zeros((64, 4), F16), np.zeros(64, np.uint32)
    for lane in range(64):
        row, group = lane % 16, lane // 16
        for pair in range(2):
            places = sorted(rng.choice(4, 2, replace=False))
            for i, place in enumerate(places):
                value = F16(rng.standard_normal())
                kept[lane, 2 * pair + i] = value
                dense[row, 8 * group + 4 * pair + place] = value
                index[lane] |= np.uint32(place << (2 * (2 * pair + i) + 8))
    b = numbers((1, 16, 32), F16, 5)
    body = """
        v_smfmac_f32_16x16x32_f16 v[100:103], v[2:3], v[4:7], v8 abid:1
        s_nop 15
    """
    got = execute(body, {2: registers(kept), 4: source(b, 1), 8: index, 100: np.ones((4, 64), F32)}, out=4)
    assert np.allclose(result(got, 16, 16, 1, F32)[0], dense.astype(F64) @ b[0].astype(F64).T + 1, atol=1e-5)


@pytest.mark.parametrize("size", [16, 32])
def test_scaled_fp4(size: int) -> None:
    """Each lane has 32 consecutive elements of K and their scale."""
    k = 128 if size == 16 else 64
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 16, (2, size, k)).astype(np.uint8)
    scales = rng.integers(125, 130, (2, size, k // 32)).astype(np.uint32)
    packed = codes[..., 0::2] | codes[..., 1::2] << 4
    sides = [source(packed[i][None], 1) for i in range(2)]
    factors = [np.ascontiguousarray(scales[i].T).reshape(64) << 8 for i in range(2)]
    out = size * size // 64
    body = f"""
        v_mfma_scale_f32_{size}x{size}x{k}_f8f6f4 v[100:{99 + out}], v[4:7], v[8:11], 0, v2, v3 op_sel:[1,1,0] op_sel_hi:[0,0,0] cbsz:4 blgp:4
        s_nop 15
        s_nop 3
    """
    got = execute(body, {4: sides[0], 8: sides[1], 2: factors[0], 3: factors[1]}, out=out, arch="gfx950")
    left, right = (table[codes[i]] * np.repeat(2.0 ** (scales[i].astype(F64) - 127), 32, axis=1) for i in range(2))
    assert np.allclose(result(got, size, size, 1, F32)[0], left @ right.T, rtol=1e-6)
