"""Single vector instructions against formulas of the ISA documents, on awkward and random values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.amdgcn.programs import execute

U32, I32, F32, U64, I64 = np.uint32, np.int32, np.float32, np.uint64, np.int64
_RNG = np.random.default_rng(7)
_EDGES = [0, 1, 2, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF, 0x10000, 0x8000, 0xFF00FF00]


def words(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**32, 64, dtype=U32)
    values[: len(_EDGES)] = np.roll(np.array(_EDGES, U32), seed)
    return values


def floats(seed: int, scale: float = 4.0) -> Any:
    values = (np.random.default_rng(seed).standard_normal(64) * scale).astype(F32)
    values[:6] = np.roll(np.array([0.0, -0.0, np.inf, 1.0, -1.5, 1e-3], F32), seed)
    return values


A, B, C = words(1), words(2), words(3)
SA, SB = A.view(I32), B.view(I32)

INTEGER = {
    "v_add_u32_e32 v100, v1, v2": A + B,
    "v_sub_u32_e32 v100, v1, v2": A - B,
    "v_subrev_u32_e32 v100, v1, v2": B - A,
    "v_add_u32_e64 v100, v1, v2 clamp": np.minimum(A.astype(U64) + B, 0xFFFFFFFF).astype(U32),
    "v_sub_u32_e64 v100, v1, v2 clamp": np.where(A > B, A - B, 0).astype(U32),
    "v_add_i32 v100, v1, v2 clamp": np.clip(SA.astype(I64) + SB, -(2**31), 2**31 - 1).astype(I32).view(U32),
    "v_mul_lo_u32 v100, v1, v2": A * B,
    "v_mul_hi_u32 v100, v1, v2": ((A.astype(U64) * B) >> U64(32)).astype(U32),
    "v_mul_hi_i32 v100, v1, v2": ((SA.astype(I64) * SB) >> 32).astype(I32).view(U32),
    "v_mul_u32_u24_e32 v100, v1, v2": (A & 0xFFFFFF) * (B & 0xFFFFFF),
    "v_and_b32_e32 v100, v1, v2": A & B,
    "v_or_b32_e32 v100, v1, v2": A | B,
    "v_xor_b32_e32 v100, v1, v2": A ^ B,
    "v_xnor_b32_e32 v100, v1, v2": ~(A ^ B),
    "v_not_b32_e32 v100, v1": ~A,
    "v_lshlrev_b32_e32 v100, v2, v1": A << (B & 31),
    "v_lshrrev_b32_e32 v100, v2, v1": A >> (B & 31),
    "v_ashrrev_i32_e32 v100, v2, v1": (SA >> (SB & 31)).view(U32),
    "v_min_i32_e32 v100, v1, v2": np.minimum(SA, SB).view(U32),
    "v_max_u32_e32 v100, v1, v2": np.maximum(A, B),
    "v_lshl_add_u32 v100, v1, v2, v3": (A << (B & 31)) + C,
    "v_add_lshl_u32 v100, v1, v2, v3": (A + B) << (C & 31),
    "v_lshl_or_b32 v100, v1, v2, v3": (A << (B & 31)) | C,
    "v_and_or_b32 v100, v1, v2, v3": (A & B) | C,
    "v_or3_b32 v100, v1, v2, v3": A | B | C,
    "v_add3_u32 v100, v1, v2, v3": A + B + C,
    "v_xad_u32 v100, v1, v2, v3": (A ^ B) + C,
    "v_bfi_b32 v100, v1, v2, v3": (A & B) | (~A & C),
    "v_bfe_u32 v100, v1, 5, 9": (A >> U32(5)) & U32(511),
    "v_bfe_i32 v100, v1, 5, 9": (((SA >> 5) << 23) >> 23).view(U32),
    "v_alignbit_b32 v100, v1, v2, 13": (((A.astype(U64) << U64(32)) | B) >> U64(13)).astype(U32),
    "v_alignbyte_b32 v100, v1, v2, 3": (((A.astype(U64) << U64(32)) | B) >> U64(24)).astype(U32),
    "v_mad_u32_u24 v100, v1, v2, v3": (A & 0xFFFFFF) * (B & 0xFFFFFF) + C,
    "v_med3_i32 v100, v1, v2, 7": np.sort([SA, SB, np.full(64, 7, I32)], axis=0)[1].view(U32),
    "v_min3_u32 v100, v1, v2, v3": np.minimum(np.minimum(A, B), C),
    "v_bcnt_u32_b32 v100, v1, v2": np.bitwise_count(A).astype(U32) + B,
    "v_bfrev_b32_e32 v100, v1": np.array([int(f"{v:032b}"[::-1], 2) for v in A], U32),
    "v_ffbh_u32_e32 v100, v1": np.array([32 - int(v).bit_length() if v else 2**32 - 1 for v in A], U32),
    "v_ffbl_b32_e32 v100, v1": np.array([(int(v) & -int(v)).bit_length() - 1 if v else 2**32 - 1 for v in A], U32),
    "v_sad_u32 v100, v1, v2, v3": np.maximum(A, B) - np.minimum(A, B) + C,
    "v_add_u16_e32 v100, v1, v2": (A + B) & 0xFFFF,
    "v_mul_lo_u16_e32 v100, v1, v2": (A * B) & 0xFFFF,
    "v_lshlrev_b16_e32 v100, 3, v1": (A << 3) & 0xFFFF,
    "v_pack_b32_f16 v100, v1, v2": (A & 0xFFFF) | (B << 16),
    "v_pack_b32_f16 v100, v1, v2 op_sel:[1,1,0]": (A >> 16) | (B & 0xFFFF0000),
    "v_mbcnt_lo_u32_b32 v100, v1, v2": np.array(
        [bin(int(a) & ((1 << min(i, 32)) - 1)).count("1") for i, a in enumerate(A)], U32) + B,
    "v_pk_add_u16 v100, v1, v2": ((A & 0xFFFF) + (B & 0xFFFF)) & 0xFFFF | (A & 0xFFFF0000) + (B & 0xFFFF0000),
    "v_pk_lshlrev_b16 v100, 4, v1 op_sel_hi:[0,1]": (A << 4) & 0xFFF0 | (A & 0xFFFF0000) << 4 & 0xFFF00000,
    "v_dot4_i32_i8 v100, v1, v2, v3": (
        (A[:, None].view(np.int8).astype(I64) * B[:, None].view(np.int8)).sum(1) + C.view(I32)).astype(I32).view(U32),
    "v_or_b32_sdwa v100, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:BYTE_3": A >> 16 | B >> 24,
    "v_add_u32_sdwa v100, v1, v2 dst_sel:BYTE_2 dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:BYTE_1":
        (((A & 255) + (B >> 8 & 255)) & 255) << 16,
}  # fmt: skip


@pytest.mark.parametrize("text", INTEGER, ids=lambda t: t.split(",")[0].split()[0])
def test_integer(text: str) -> None:
    got = execute(text, {1: A, 2: B, 3: C})[0]
    want = np.asarray(INTEGER[text]).astype(U32)
    assert (got == want).all(), text


def test_perm_takes_bytes_of_both() -> None:
    select = np.array([0x07060504, 0x03020100, 0x0C0D0805, 0x0B0A0908], U32).repeat(16)
    high, low = np.full(64, 0x80112233, U32), np.full(64, 0x44556677, U32)
    got = execute("v_perm_b32 v100, v1, v2, v3", {1: high, 2: low, 3: select})[0]
    # 8: the sign of byte 1 (0x66), 9: of byte 3 (0x44), 10: of byte 5 (0x22), 11: of byte 7 (0x80).
    assert [hex(v) for v in got[::16]] == ["0x80112233", "0x44556677", "0xff0022", "0xff000000"]


@pytest.mark.parametrize("code", [0x6C, 0x96, 0xE8, 0x01, 0xFE])
def test_bitop3_is_its_truth_table(code: int) -> None:
    got = execute(f"v_bitop3_b32 v100, v1, v2, v3 bitop3:{code:#x}", {1: A, 2: B, 3: C}, arch="gfx950")[0]
    want = np.zeros(64, U32)
    for bit in range(32):
        index = (A >> U32(bit) & 1) << 2 | (B >> U32(bit) & 1) << 1 | (C >> U32(bit) & 1)
        want |= (U32(code) >> index & 1) << U32(bit)
    assert (got == want).all()


def test_carries() -> None:
    got = execute(
        """
        v_add_co_u32_e64 v100, s[4:5], v1, v3
        s_nop 1
        v_addc_co_u32_e64 v101, s[4:5], v2, v4, s[4:5]
        """,
        {1: A, 2: B, 3: C, 4: B},
        out=2,
    )
    total = (A.astype(U64) | B.astype(U64) << U64(32)) + (C.astype(U64) | B.astype(U64) << U64(32))
    assert (got[0] == total.astype(U32)).all()
    assert (got[1] == (total >> U64(32)).astype(U32)).all()


def test_64_bit_arithmetic() -> None:
    got = execute(
        "v_mad_u64_u32 v[100:101], s[4:5], v1, v2, v[4:5]\n v_lshl_add_u64 v[102:103], v[4:5], 3, v[4:5]",
        {1: A, 2: B, 4: np.stack([C, A])},
        out=4,
    )
    base = C.astype(U64) | A.astype(U64) << U64(32)
    assert (got[0].astype(U64) | got[1].astype(U64) << U64(32) == A.astype(U64) * B + base).all()
    assert (got[2].astype(U64) | got[3].astype(U64) << U64(32) == (base << U64(3)) + base).all()


X, Y, Z = floats(1), floats(2), floats(3)


def bits(values: Any) -> Any:
    return np.ascontiguousarray(values, F32).view(U32)


with np.errstate(all="ignore"):
    FLOAT = {
        "v_add_f32_e32 v100, v1, v2": X + Y,
        "v_sub_f32_e64 v100, -v1, |v2|": -X - np.abs(Y),
        "v_mul_f32_e64 v100, v1, v2 mul:2": X * Y * F32(2),
        "v_mul_f32_e64 v100, v1, v2 clamp": np.where(X * Y > 0, np.minimum(X * Y, F32(1)), F32(0)),
        "v_fma_f32 v100, v1, v2, v3": (X.astype(np.longdouble) * Y + Z).astype(F32),
        "v_max3_f32 v100, v1, v2, v3": np.fmax(np.fmax(X, Y), Z),
        "v_floor_f32_e32 v100, v1": np.floor(X),
        "v_rndne_f32_e32 v100, v1": np.rint(X),
        "v_trunc_f32_e32 v100, v1": np.trunc(X),
        "v_exp_f32_e32 v100, v1": np.exp2(X.astype(np.float64)).astype(F32),
        "v_sqrt_f32_e64 v100, |v1|": np.sqrt(np.abs(X)),
        "v_rcp_f32_e32 v100, v1": (1 / X.astype(np.float64)).astype(F32),
        "v_cvt_f32_i32_e32 v100, v4": SA.astype(F32),
        "v_cvt_f32_u32_e32 v100, v4": A.astype(F32),
        "v_cvt_f32_ubyte2_e32 v100, v4": (A >> 16 & 255).astype(F32),
        "v_ldexp_f32 v100, v1, 5": X * F32(32),
        "v_mul_f32_e32 v100, 0.5, v1": X * F32(0.5),
        "v_mul_f32_e32 v100, 0x40490fdb, v1": X * F32(np.pi),
        "v_fract_f32_e32 v100, v2": np.where(np.isinf(Y), F32(np.nan), Y - np.floor(Y)),
    }


@pytest.mark.parametrize(
    "text", FLOAT, ids=lambda t: t.split()[0] + ("-clamp" if "clamp" in t else "") + ("-literal" if "0x" in t else "")
)
def test_float(text: str) -> None:
    got = execute(text, {1: X, 2: Y, 3: Z, 4: A})[0].view(F32)
    want = np.asarray(FLOAT[text], F32)
    same = (bits(got) == bits(want)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), (text, got[~same], want[~same])


@pytest.mark.parametrize(("text", "want"), [
    ("v_cvt_i32_f32_e32 v100, v1", [0, 1, -1, 2**31 - 1, -(2**31), 0]),
    ("v_cvt_u32_f32_e32 v100, v1", [0, 1, 0, 2**32 - 1, 0, 0]),
    ("v_cvt_rpi_i32_f32_e32 v100, v1", [1, 2, -1, 2**31 - 1, -(2**31), 0]),
    ("v_cvt_flr_i32_f32_e32 v100, v1", [0, 1, -2, 2**31 - 1, -(2**31), 0]),
])  # fmt: skip
def test_float_to_integer_saturates(text: str, want: list[int]) -> None:
    x = np.resize(np.array([0.5, 1.5, -1.5, np.inf, -np.inf, np.nan], F32), 64)
    assert (execute(text, {1: x})[0][:6] == np.array(want, I64).astype(U32)).all()


def test_division_steps_give_the_quotient() -> None:
    """LLVM's sequence for an IEEE division, on ordinary, huge and tiny values."""
    rng = np.random.default_rng(3)
    n = np.ldexp(rng.standard_normal(64), rng.integers(-120, 120, 64)).astype(F32)
    d = np.ldexp(rng.standard_normal(64), rng.integers(-120, 120, 64)).astype(F32)
    n[:4], d[:4] = [0, 1, np.inf, 1e-40], [1, 0, 2, 3]
    got = execute(
        """
        v_div_scale_f32 v10, s[4:5], v2, v2, v1
        v_rcp_f32_e32 v11, v10
        s_nop 0
        v_fma_f32 v12, -v10, v11, 1.0
        v_fmac_f32_e32 v11, v12, v11
        v_div_scale_f32 v12, vcc, v1, v2, v1
        v_mul_f32_e32 v13, v12, v11
        v_fma_f32 v14, -v10, v13, v12
        v_fmac_f32_e32 v13, v14, v11
        v_fma_f32 v10, -v10, v13, v12
        s_nop 3
        v_div_fmas_f32 v10, v10, v11, v13
        v_div_fixup_f32 v100, v10, v2, v1
        """,
        {1: n, 2: d},
    )[0].view(F32)
    with np.errstate(all="ignore"):
        want = n / d
    assert ((bits(got) == bits(want)) | np.isnan(want)).all()


HALF = np.random.default_rng(5).standard_normal((4, 64)).astype(np.float16)
H1, H2 = (np.ascontiguousarray(HALF[i : i + 2].T).view(U32)[:, 0] for i in (0, 2))


def test_packed_halves() -> None:
    got = execute("v_pk_mul_f16 v100, v1, v2 op_sel:[0,1] op_sel_hi:[1,0] neg_lo:[1,0]", {1: H1, 2: H2})[0]
    halves = got[:, None].view(np.float16)
    assert (halves[:, 0] == -HALF[0] * HALF[3]).all()
    assert (halves[:, 1] == HALF[1] * HALF[2]).all()


def test_packed_multiply_and_add_in_place() -> None:
    got = execute("v_mov_b32_e32 v100, v2\n v_pk_fmac_f16 v100, v1, v1", {1: H1, 2: H2})[0]
    halves = got[:, None].view(np.float16)
    for k in (0, 1):
        assert (halves[:, k] == (HALF[k].astype(np.float64) ** 2 + HALF[2 + k]).astype(np.float16)).all()


def test_packed_floats() -> None:
    pair = np.stack([bits(X), bits(Y)])
    got = execute(
        "v_pk_mul_f32 v[100:101], v[1:2], v[3:4] op_sel_hi:[1,0]", {1: pair, 3: np.stack([bits(Z), bits(X)])}, out=2
    )
    with np.errstate(all="ignore"):
        want = np.stack([X * Z, Y * Z])
    assert ((got.view(F32) == want) | np.isnan(want)).all()


def test_mixed_fma() -> None:
    got = execute("v_fma_mix_f32 v100, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[1,0,0]", {1: H1, 2: Y, 3: Z})[0].view(F32)
    want = (HALF[1].astype(np.float64) * Y + Z).astype(F32)
    assert ((got == want) | np.isnan(want)).all()


@pytest.mark.parametrize(("text", "fn"), [
    ("v_cmp_lt_f32_e64 s[4:5], v1, v2", lambda x, y: x < y),
    ("v_cmp_nlt_f32_e64 s[4:5], v1, v2", lambda x, y: ~(x < y)),
    ("v_cmp_o_f32_e64 s[4:5], v1, v2", lambda x, y: ~(np.isnan(x) | np.isnan(y))),
    ("v_cmp_u_f32_e64 s[4:5], v1, v2", lambda x, y: np.isnan(x) | np.isnan(y)),
    ("v_cmp_neq_f32_e64 s[4:5], v1, v2", lambda x, y: ~(x == y)),
    ("v_cmp_lg_f32_e64 s[4:5], v1, v2", lambda x, y: (x < y) | (x > y)),
    ("v_cmp_class_f32_e64 s[4:5], v1, 3", lambda x, y: np.isnan(x)),
    ("v_cmp_class_f32_e64 s[4:5], v1, v3", lambda x, y: np.isinf(x)),
])  # fmt: skip
def test_compare(text: str, fn: Any) -> None:
    x, y = X.copy(), Y.copy()
    x[10:12], y[11:13] = np.nan, np.nan
    body = f"{text}\n s_nop 1\n v_cndmask_b32_e64 v100, 0, 1, s[4:5]"
    got = execute(body, {1: x, 2: y, 3: np.full(64, 0x204, U32)})[0]
    assert (got == fn(x, y)).all()


DPP = {
    "quad_perm:[1,0,3,2]": [i ^ 1 for i in range(64)],
    "row_shl:3": [i + 3 if i % 16 < 13 else None for i in range(64)],
    "row_shr:1": [i - 1 if i % 16 else None for i in range(64)],
    "row_ror:4": [i // 16 * 16 + (i - 4) % 16 for i in range(64)],
    "row_mirror": [i // 16 * 16 + 15 - i % 16 for i in range(64)],
    "row_half_mirror": [i // 8 * 8 + 7 - i % 8 for i in range(64)],
    "row_bcast:15": [i // 16 * 16 - 1 if i >= 16 else None for i in range(64)],
    "row_bcast:31": [31 if i >= 32 else None for i in range(64)],
    "row_newbcast:5": [i // 16 * 16 + 5 for i in range(64)],
    "wave_shr:1": [i - 1 if i else None for i in range(64)],
    "wave_rol:1": [(i + 1) % 64 for i in range(64)],
}


@pytest.mark.parametrize("zero", [False, True], ids=["keep", "zero"])
@pytest.mark.parametrize("control", DPP)
def test_dpp(control: str, zero: bool) -> None:
    tail = " row_mask:0xf bank_mask:0xf" + (" bound_ctrl:1" if zero else "")
    got = execute(f"v_mov_b32_e32 v100, v2\n s_nop 1\n v_mov_b32_dpp v100, v1 {control}{tail}", {1: A, 2: B})[0]
    want = [A[s] if s is not None else (0 if zero else B[i]) for i, s in enumerate(DPP[control])]
    assert (got == np.array(want, U32)).all()


def test_dpp_row_and_bank_masks() -> None:
    got = execute(
        "v_mov_b32_e32 v100, v2\n s_nop 1\n v_mov_b32_dpp v100, v1 row_ror:1 row_mask:0x5 bank_mask:0x3", {1: A, 2: B}
    )[0]
    lane = np.arange(64)
    written = (lane // 16 % 2 == 0) & (lane % 16 < 8)
    assert (got == np.where(written, A[lane // 16 * 16 + (lane - 1) % 16], B)).all()


def test_lane_crossing() -> None:
    got = execute(
        """
        v_readlane_b32 s4, v1, 17
        v_readfirstlane_b32 s5, v2
        v_mov_b32_e32 v100, v1
        s_nop 3
        v_writelane_b32 v100, s4, 3
        v_writelane_b32 v100, s5, 60
        """,
        {1: A, 2: B},
    )[0]
    want = A.copy()
    want[3], want[60] = A[17], B[0]
    assert (got == want).all()


@pytest.mark.parametrize("rows", [16, 32])
def test_permlane_swap(rows: int) -> None:
    body = f"v_mov_b32_e32 v100, v1\n v_mov_b32_e32 v101, v2\n s_nop 1\n v_permlane{rows}_swap_b32_e32 v100, v101"
    got = execute(body, {1: A, 2: B}, out=2, arch="gfx950")
    a, b = A.reshape(-1, rows).copy(), B.reshape(-1, rows).copy()
    a[1::2], b[0::2] = B.reshape(-1, rows)[0::2], A.reshape(-1, rows)[1::2]
    assert (got[0] == a.reshape(-1)).all()
    assert (got[1] == b.reshape(-1)).all()
