"""Small float formats and the instructions that convert them, against ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.sim.amdgcn.formats import decode, encode
from tests.sim.amdgcn.programs import execute

U32, F32, F64 = np.uint32, np.float32, np.float64
TYPES: dict[str, Any] = {
    "fp8_fnuz": ml_dtypes.float8_e4m3fnuz, "bf8_fnuz": ml_dtypes.float8_e5m2fnuz, "fp8": ml_dtypes.float8_e4m3fn,
    "bf8": ml_dtypes.float8_e5m2, "fp6": ml_dtypes.float6_e2m3fn, "bf6": ml_dtypes.float6_e3m2fn, "fp4": ml_dtypes.float4_e2m1fn,
    "bf16": ml_dtypes.bfloat16, "f16": np.float16,
}  # fmt: skip
BITS = {"fp6": 6, "bf6": 6, "fp4": 4}


def values() -> Any:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.standard_normal(2000) * s for s in (1e-3, 1, 20, 300)] + [[0.0, -0.0]]).astype(F32)


@pytest.mark.parametrize("name", [n for n in TYPES if n not in ("bf16", "f16")])
def test_every_code_decodes(name: str) -> None:
    codes = np.arange(1 << BITS.get(name, 8), dtype=np.uint8)
    want = codes.view(TYPES[name]).astype(F64)
    got = decode(name, codes)
    assert ((got == want) | (np.isnan(got) & np.isnan(want))).all()
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("name", TYPES)
def test_encoding_rounds_to_nearest_even(name: str) -> None:
    x = values()
    limit = float(ml_dtypes.finfo(TYPES[name]).max)
    x = x[np.abs(x) <= limit]
    want = x.astype(TYPES[name])
    got = encode(name, x.astype(F64)).astype(np.uint16 if want.itemsize == 2 else np.uint8)
    assert (got == want.view(got.dtype)).all()


@pytest.mark.parametrize(("name", "saturated", "plain"), [
    ("fp8_fnuz", 0x7F, 0x80), ("bf8_fnuz", 0x7F, 0x80), ("fp8", 0x7E, 0x7F), ("bf8", 0x7B, 0x7C), ("fp4", 7, 7),
])  # fmt: skip
def test_what_is_too_large(name: str, saturated: int, plain: int) -> None:
    x = np.array([1e6])
    assert encode(name, x)[0] == saturated
    assert encode(name, x, saturate=False)[0] == plain


X, Y = (np.random.default_rng(s).standard_normal(64).astype(F32) * 8 for s in (1, 2))


@pytest.mark.parametrize("kind", ["fp8", "bf8"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_fp8_pairs(arch: str, kind: str) -> None:
    dtype = TYPES[f"{kind}_fnuz" if arch == "gfx942" else kind]
    body = f"""
        v_mov_b32_e32 v100, 0
        v_cvt_pk_{kind}_f32 v100, v1, v2
        v_cvt_pk_{kind}_f32 v100, v2, v1 op_sel:[0,0,1]
        s_nop 0
        v_cvt_f32_{kind}_sdwa v101, v100 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2
        v_cvt_pk_f32_{kind}_sdwa v[102:103], v100 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1
    """
    got = execute(body, {1: X, 2: Y}, out=4, arch=arch)
    x8, y8 = X.astype(dtype), Y.astype(dtype)
    assert (got[0][:, None].view(np.uint8) == np.stack([x8, y8, y8, x8], 1).view(np.uint8)).all()
    assert (got[1].view(F32) == y8.astype(F32)).all()
    assert (got[2:].view(F32) == np.stack([y8, x8]).astype(F32)).all()


def test_pairs_of_16_bits() -> None:
    body = "v_cvt_pk_bf16_f32 v100, v1, v2\n v_cvt_pk_f16_f32 v101, v1, v2\n v_cvt_pkrtz_f16_f32 v102, v1, v2"
    got = execute(body, {1: X, 2: Y}, out=3, arch="gfx950")
    for k, dtype in enumerate((ml_dtypes.bfloat16, np.float16)):
        assert (got[k][:, None].view(np.uint16) == np.stack([X, Y], 1).astype(dtype).view(np.uint16)).all()
    cut = got[2][:, None].view(np.float16).astype(F32)
    assert (np.abs(cut) <= np.abs(np.stack([X, Y], 1))).all()


SCALE = np.full(64, 4.0, F32)


@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_scaled_fp8(kind: str) -> None:
    body = f"""
        v_mov_b32_e32 v100, 0
        v_cvt_scalef32_pk_{kind}_f32 v100, v1, v2, v3
        v_cvt_scalef32_pk_{kind}_f32 v100, v2, v1, v3 op_sel:[0,0,0,1]
        s_nop 0
        v_cvt_scalef32_f32_{kind} v101, v100, v3 op_sel:[1,0,0]
        v_cvt_scalef32_f32_{kind} v102, v100, v3 op_sel:[0,1,0]
        v_cvt_scalef32_pk_f32_{kind} v[103:104], v100, v3 op_sel:[1,0,0]
    """
    got = execute(body, {1: X, 2: Y, 3: SCALE}, out=5, arch="gfx950")
    x8, y8 = ((v / 4).astype(TYPES[kind]) for v in (X, Y))
    assert (got[0][:, None].view(np.uint8) == np.stack([x8, y8, y8, x8], 1).view(np.uint8)).all()
    back_x, back_y = x8.astype(F32) * 4, y8.astype(F32) * 4
    assert (got[1:].view(F32) == np.stack([back_y, back_y, back_y, back_x])).all()


def test_scaled_fp4() -> None:
    body = """
        v_mov_b32_e32 v100, 0
        v_cvt_scalef32_pk_fp4_f32 v100, v1, v2, v3
        v_cvt_scalef32_pk_fp4_f32 v100, v2, v1, v3 op_sel:[0,0,1,0]
        v_cvt_scalef32_pk_fp4_f32 v100, v1, v1, v3 op_sel:[0,0,0,1]
        s_nop 0
        v_cvt_scalef32_pk_f32_fp4 v[101:102], v100, v3 op_sel:[1,0,0]
        v_cvt_scalef32_pk_f16_fp4 v103, v100, v3 op_sel:[0,1,0]
    """
    got = execute(body, {1: X, 2: Y, 3: SCALE}, out=4, arch="gfx950")
    limit = [np.clip(v / 4, -6, 6).astype(TYPES["fp4"]) for v in (X, Y)]
    cx, cy = (v.view(np.uint8).astype(U32) for v in limit)
    assert (got[0] == (cx | cy << 4 | cy << 8 | cx << 12 | cx << 16 | cx << 20)).all()
    bx, by = (v.astype(F32) * 4 for v in limit)
    assert (got[1:3].view(F32) == np.stack([by, bx])).all()
    assert (got[3][:, None].view(np.float16) == np.stack([bx, bx], 1).astype(np.float16)).all()


@pytest.mark.parametrize("kind", ["fp6", "bf6"])
def test_scaled_fp6(kind: str) -> None:
    halves = (np.random.default_rng(5).standard_normal((64, 32)) * 4).astype(np.float16)
    packed = np.ascontiguousarray(np.ascontiguousarray(halves).view(U32).T)
    body = f"""
        v_cvt_scalef32_pk32_{kind}_f16 v[40:45], v[4:19], v3
        v_cvt_scalef32_pk32_f16_{kind} v[100:115], v[40:45], v3
    """
    got = execute(body, {4: packed, 3: SCALE}, out=16, arch="gfx950")
    want = (halves.astype(F32) / 4).astype(TYPES[kind]).astype(F32) * 4
    assert (np.ascontiguousarray(got.T).view(np.float16) == want).all()


def test_stochastic_rounding_goes_both_ways() -> None:
    """A value a quarter above a code is rounded up by a quarter of all random words."""
    x = np.full(64, 1 + 1 / 32, F32)
    random = np.linspace(0, 2**32 - 1, 64).astype(np.uint64).astype(U32)
    got = execute("v_mov_b32_e32 v100, 0\n v_cvt_sr_fp8_f32 v100, v1, v2", {1: x, 2: random}, arch="gfx950")[0]
    assert set(got.tolist()) == {0x38, 0x39}
    assert (got == 0x39).sum() == 16
