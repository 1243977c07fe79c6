"""Matrix instructions on whole tiles against NumPy: mma.sync in every type, ldmatrix, stmatrix, wgmma with every swizzle."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.run import run_ptx

from .programs import SMEM, frame

NUMPY = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f64": np.float64, "s8": np.int8, "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "f32": np.float32, "s32": np.int32,
}  # fmt: skip


def random(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind in ("s8", "u8"):
        return rng.integers(np.iinfo(NUMPY[kind]).min, np.iinfo(NUMPY[kind]).max + 1, shape).astype(NUMPY[kind])
    if kind == "s32":
        return rng.integers(-1000, 1000, shape).astype(np.int32)
    out = rng.standard_normal(shape).astype(NUMPY[kind])
    return (out.view(np.uint32) & 0xFFFFE000).view(np.float32) if kind == "tf32" else out


def wide(a: np.ndarray) -> np.ndarray:
    return a.astype(np.int64 if a.dtype.kind in "iu" else np.float64)


def run(text: str, *args: object, shared: int = 0, seed: int = 0) -> None:
    run_ptx(text, "k", (1, 1, 1), list(args), shared_bytes=shared, seed=seed)  # type: ignore[arg-type]


# -- mma.sync -----------------------------------------------------------------------------------------------------


def mma_text(shape: str, kinds: tuple[str, str, str, str], m: int, k: int) -> tuple[str, int, int, int]:
    """One mma on fragments given as registers: a tensor of words by (lane, register)."""
    d, a, b, c = kinds
    size = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "f32": 32, "s32": 32}
    word = 64 if a == "f64" else 32
    na, nb, nc, nd = (
        m * k * size[a] // (32 * word),
        8 * k * size[b] // (32 * word),
        m * 8 * size[c] // (32 * word),
        m * 8 * size[d] // (32 * word),
    )
    reg, byte = ("d", 8) if word == 64 else ("r", 4)
    loads = ""
    groups: list[str] = []
    for j, (count, first) in enumerate(((na, 10), (nb, 20), (nc, 30))):
        loads += f"mad.wide.u32 d4, r0, {count * byte}, d{j};\n"
        loads += "".join(f"ld.global.b{word} {reg}{first + i}, [d4+{i * byte}];\n" for i in range(count))
        groups.append("{" + ", ".join(f"{reg}{first + i}" for i in range(count)) + "}")
    out = "{" + ", ".join(f"{reg}{40 + i}" for i in range(nd)) + "}"
    body = loads + f"mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{c} {out}, {', '.join(groups)};\n"
    body += f"mad.wide.u32 d4, r0, {nd * byte}, d3;\n" + "".join(
        f"st.global.b{word} [d4+{i * byte}], {reg}{40 + i};\n" for i in range(nd)
    )
    return frame(body, 4), na, nb, nd


def fragment(matrix: np.ndarray, positions: list[tuple[int, int]], per_lane: int) -> np.ndarray:
    return np.array([matrix[p] for p in positions], matrix.dtype).reshape(32, per_lane)


CASES = [
    ("m16n8k16", ("f32", "f16", "f16", "f32"), 16, 16), ("m16n8k16", ("f16", "f16", "f16", "f16"), 16, 16),
    ("m16n8k8", ("f32", "f16", "f16", "f32"), 16, 8), ("m16n8k16", ("f32", "bf16", "bf16", "f32"), 16, 16),
    ("m16n8k8", ("f32", "bf16", "bf16", "f32"), 16, 8), ("m16n8k8", ("f32", "tf32", "tf32", "f32"), 16, 8),
    ("m16n8k4", ("f32", "tf32", "tf32", "f32"), 16, 4), ("m16n8k32", ("f32", "e4m3", "e5m2", "f32"), 16, 32),
    ("m16n8k32", ("s32", "s8", "u8", "s32"), 16, 32), ("m16n8k16", ("s32", "s8", "s8", "s32"), 16, 16),
    ("m8n8k16", ("s32", "u8", "s8", "s32"), 8, 16), ("m8n8k4", ("f64", "f64", "f64", "f64"), 8, 4),
    ("m16n8k16", ("f64", "f64", "f64", "f64"), 16, 16),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "kinds", "m", "k"), CASES)
def test_mma_sync(shape: str, kinds: tuple[str, str, str, str], m: int, k: int) -> None:
    """Fragments are laid out here from the ISA's figures, element by element."""
    d, ak, bk, c = kinds
    a, b, acc = random(ak, (m, k), 1), random(bk, (k, 8), 2), random(c, (m, 8), 3)
    e = {1: 4, 2: 2, 4: 1, 8: 1}[a.dtype.itemsize]
    regs = m * k // (32 * e)
    half = 2 if m == 16 else 1

    def a_at(lane: int, i: int, x: int) -> tuple[int, int]:
        return lane // 4 + 8 * (i % half), e * (lane % 4) + x + 4 * e * (i // half)

    pa = [a_at(lane, i, x) for lane in range(32) for i in range(regs) for x in range(e)]
    pb = [
        (e * (lane % 4) + x + 4 * e * i, lane // 4)
        for lane in range(32)
        for i in range(8 * k // (32 * e))
        for x in range(e)
    ]
    pc = [(lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2) for lane in range(32) for i in range(m * 8 // 32)]
    text, _, _, nd = mma_text(shape, kinds, m, k)
    word = np.uint64 if ak == "f64" else np.uint32
    fa, fb, fc = fragment(a, pa, regs * e), fragment(b, pb, len(pb) // 32), fragment(acc, pc, len(pc) // 32)
    out = np.zeros((32, nd), word)
    run(text, *(np.ascontiguousarray(f).view(word) for f in (fa, fb, fc)), out)
    got = np.empty((m, 8), NUMPY[d])
    for p, value in zip(pc, out.view(NUMPY[d]).reshape(-1), strict=False):
        got[p] = value
    want = (wide(acc) + wide(a) @ wide(b)).astype(NUMPY[d])
    assert np.array_equal(got, want) if d != "f64" else np.allclose(got, want, rtol=1e-14)


LDMATRIX = """
mov.u32 r1, smem; mad.lo.u32 r2, r0, 16, r1; mad.wide.u32 d3, r0, 16, d0;
ld.global.v4.b32 {{r4, r5, r6, r7}}, [d3]; st.shared.v4.b32 [r2], {{r4, r5, r6, r7}};
ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{r10, r11, r12, r13}}, [r2];
mad.wide.u32 d4, r0, 16, d1; st.global.v4.b32 [d4], {{r10, r11, r12, r13}};
mad.lo.u32 r3, r0, 16, r1; bar.sync 0;
stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [r3+512], {{r10, r11, r12, r13}};
ld.shared.v4.b32 {{r4, r5, r6, r7}}, [r2+512]; mad.wide.u32 d5, r0, 16, d2; st.global.v4.b32 [d5], {{r4, r5, r6, r7}};
"""


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix_and_stmatrix(trans: str) -> None:
    x = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    y, z = np.zeros((32, 4, 2), np.uint16), np.zeros_like(x)
    run(frame(LDMATRIX.format(trans=trans), 3, 32, SMEM), x, y, z, shared=1024)
    for lane in range(32):
        for i in range(4):
            g, t = lane // 4, lane % 4
            want = x[i, 2 * t : 2 * t + 2, g] if trans else x[i, g, 2 * t : 2 * t + 2]
            assert (y[lane, i] == want).all()
    assert (z == x).all()


def test_mma_with_missing_lanes() -> None:
    text = mma_text("m16n8k8", ("f32", "f16", "f16", "f32"), 16, 8)[0]
    text = text.replace("mov.u32 r0, %tid.x;", "mov.u32 r0, %tid.x; setp.lt.u32 p1, r0, 16; @p1 bra L;").replace(
        "mma.sync", "L: mma.sync"
    )
    with pytest.raises(SimulationError, match="read before it is written"):
        run(text, *(np.zeros(256, np.uint32) for _ in range(4)))


# -- wgmma --------------------------------------------------------------------------------------------------------

SPAN = {0: 16, 1: 128, 2: 64, 3: 32}


def swizzle(byte: np.ndarray, layout: int) -> np.ndarray:
    mask = {0: 0, 1: 7, 2: 3, 3: 1}[layout]
    return byte ^ ((byte >> 7 & mask) << 4)


def place(matrix: np.ndarray, layout: int, mn_major: bool) -> tuple[np.ndarray, int, int]:
    """A (rows, k) operand as TMA would write it: bytes, leading and stride offsets."""
    rows, k = matrix.shape
    size = matrix.dtype.itemsize
    r, c = np.meshgrid(np.arange(rows), np.arange(k), indexing="ij")
    span = SPAN[layout]
    if layout == 0:
        lbo, sbo = (128 * (rows // 8), 128) if not mn_major else (128, 128 * (k // 8))
        if mn_major:
            byte = r // 8 * sbo + c // 8 * lbo + c % 8 * 16 + r % 8 * size
        else:
            byte = r // 8 * sbo + c * size // 16 * lbo + r % 8 * 16 + c * size % 16
    elif mn_major:
        lbo, sbo = k * span, 8 * span
        byte = r // (span // size) * lbo + c * span + r % (span // size) * size
    else:
        assert k * size <= span
        lbo, sbo = 16, 8 * span
        byte = r * span + c * size
    flat = np.zeros(-(-(int(byte.max()) + size) // 1024) * 1024, np.uint8)
    byte = swizzle(byte, layout)
    raw = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows, k, size)
    for i in range(size):
        flat[byte + i] = raw[:, :, i]
    return flat, lbo, sbo


def wgmma_text(
    n: int, k: int, kinds: tuple[str, str, str], a_bytes: int, b_bytes: int, desc: tuple[int, int], steps: tuple[int, int, int],
    trans: tuple[int, int], registers_a: bool = False, accumulate: bool = False,
) -> str:  # fmt: skip
    """Copy both operands to shared memory, then `steps[0]` chained instructions; A and B advance by steps[1], steps[2] bytes."""
    d, a, b = kinds
    size = 4 if d in ("f32", "s32") else 2
    regs = n // 2 * size // 4
    acc = "{" + ", ".join(f"r{100 + i}" for i in range(regs)) + "}"
    copy = """
    mov.u32 r1, smem; mad.lo.u32 r2, r0, 16, r1;
    """
    for pointer, base, total in ((0, 0, a_bytes), (1, a_bytes, b_bytes)):
        for at in range(0, total, 2048):
            count = min(128, (total - at) // 16)
            copy += f"""
            setp.lt.u32 p1, r0, {count}; mad.wide.u32 d4, r0, 16, d{pointer};
            @p1 ld.global.v4.b32 {{r4, r5, r6, r7}}, [d4+{at}]; @p1 st.shared.v4.b32 [r2+{base + at}], {{r4, r5, r6, r7}};"""
    text = copy + "\nfence.proxy.async.shared::cta;\nbar.sync 0;\n"
    if accumulate:
        text += "".join(f"mov.b32 r{100 + i}, 0x3f800000;\n" for i in range(regs))
    if registers_a:
        text += "mad.wide.u32 d4, r0, 16, d3; ld.global.v4.b32 {r90, r91, r92, r93}, [d4];\n"
    text += (
        f"add.u32 r8, r1, {a_bytes}; shr.u32 r8, r8, 4; cvt.u64.u32 d6, r8; shr.u32 r9, r1, 4; cvt.u64.u32 d5, r9;\n"
    )
    text += f"or.b64 d5, d5, {desc[0]}; or.b64 d6, d6, {desc[1]};\nwgmma.fence.sync.aligned;\n"
    flags = ", 1, 1" if a not in ("s8", "u8") else ""
    if a in ("f16", "bf16"):
        flags += f", {trans[1]}" if registers_a else f", {trans[0]}, {trans[1]}"
    for i in range(steps[0]):
        text += (
            f"setp.ne.u32 p3, {1 if accumulate else i}, 0;\n"
            if False
            else f"mov.pred p3, {1 if accumulate or i else 0};\n"
        )
        source = "{r90, r91, r92, r93}" if registers_a else "d7"
        text += f"add.u64 d7, d5, {i * steps[1] // 16}; add.u64 d8, d6, {i * steps[2] // 16};\n"
        text += f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b} {acc}, {source}, d8, p3{flags};\n"
    text += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
    text += f"mad.wide.u32 d9, r0, {regs * 4}, d2;\n" + "".join(
        f"st.global.b32 [d9+{4 * i}], r{100 + i};\n" for i in range(regs)
    )
    return frame(text, 4, 128, SMEM)


def descriptor(layout: int, lbo: int, sbo: int) -> int:
    return layout << 62 | sbo >> 4 << 32 | lbo >> 4 << 16


def unpack(out: np.ndarray, n: int, dtype: type) -> np.ndarray:
    values = out.view(dtype).reshape(4, 32, -1)
    got = np.zeros((64, n), dtype)
    for w in range(4):
        for lane in range(32):
            for r in range(n // 2):
                got[16 * w + lane // 4 + 8 * (r // 2 % 2), 8 * (r // 4) + 2 * (lane % 4) + r % 2] = values[w, lane, r]
    return got


WGMMA = [
    (kinds, n, layout, ta, tb)
    for kinds, n in ((("f32", "bf16", "bf16"), 64), (("f16", "f16", "f16"), 32))
    for layout in (0, 1, 2, 3) for ta in (0, 1) for tb in (0, 1)
] + [
    (("f32", "tf32", "tf32"), 16, 1, 0, 0), (("f32", "e4m3", "e5m2"), 24, 2, 0, 0), (("s32", "u8", "s8"), 8, 3, 0, 0),
    (("f32", "tf32", "tf32"), 8, 0, 0, 0), (("s32", "s8", "s8"), 96, 1, 0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("kinds", "n", "layout", "ta", "tb"), WGMMA)
def test_wgmma_from_shared_memory(kinds: tuple[str, str, str], n: int, layout: int, ta: int, tb: int) -> None:
    d, ak, bk = kinds
    size = np.dtype(NUMPY[ak]).itemsize
    step = 32 // size
    count = 2 if ta or tb or layout in (0, 3) else SPAN[layout] // 32
    if layout == 3:
        count = 1 if not (ta and tb) else 2
    k = step * count
    a, b = random(ak, (64, k), 1), random(bk, (n, k), 2)
    (fa, la, sa), (fb, lb, sb) = place(a, layout, bool(ta)), place(b, layout, bool(tb))

    def advance(mn_major: int, lbo: int) -> int:
        if layout == 0:
            return 2 * lbo
        return 16 * SPAN[layout] if mn_major else 32

    text = wgmma_text(
        n, step, kinds, len(fa), len(fb), (descriptor(layout, la, sa), descriptor(layout, lb, sb)),
        (count, advance(ta, la), advance(tb, lb)), (ta, tb),
    )  # fmt: skip
    out = np.zeros((128, n // 2 * np.dtype(NUMPY[d]).itemsize // 4), np.uint32)
    run(text, fa, fb, out, out.copy(), shared=len(fa) + len(fb))
    want = wide(a) @ wide(b).T
    got = unpack(out, n, NUMPY[d]).astype(np.float64)
    # One rounding to D for each instruction.
    eps = {"f32": 2.0**-23, "f16": 2.0**-10, "s32": 0.0}[d]
    assert (np.abs(got - want) <= count * eps * (np.abs(wide(a)) @ np.abs(wide(b)).T)).all()


def simple(registers_a: bool = False, accumulate: bool = False) -> tuple[str, list[np.ndarray], np.ndarray]:
    a, b = random("bf16", (64, 16), 1), random("bf16", (32, 16), 2)
    (fa, la, sa), (fb, lb, sb) = place(a, 3, False), place(b, 3, False)
    text = wgmma_text(
        32, 16, ("f32", "bf16", "bf16"), len(fa), len(fb), (descriptor(3, la, sa), descriptor(3, lb, sb)), (1, 0, 0), (0, 0),
        registers_a, accumulate,
    )  # fmt: skip
    frag = np.zeros((4, 32, 4, 2), ml_dtypes.bfloat16)
    for w in range(4):
        for lane in range(32):
            for i in range(4):
                for x in range(2):
                    frag[w, lane, i, x] = a[16 * w + lane // 4 + 8 * (i % 2), 2 * (lane % 4) + x + 8 * (i // 2)]
    out = np.zeros((128, 16), np.uint32)
    return text, [fa, fb, out, frag.view(np.uint32)], wide(a) @ wide(b).T


@pytest.mark.parametrize("registers_a", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_wgmma_registers_and_accumulator(registers_a: bool, accumulate: bool) -> None:
    text, args, want = simple(registers_a, accumulate)
    run(text, *args, shared=6144)
    got = unpack(args[2], 32, np.float32)
    assert (got == (want + (1 if accumulate else 0)).astype(np.float32)).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("wgmma.wait_group.sync.aligned 0;", "", "in flight still writes it"),
        ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", "in flight still writes it"),
        ("wgmma.commit_group.sync.aligned;", "", "in flight still writes it"),
        ("wgmma.fence.sync.aligned;", "", "wgmma.fence is missing"),
        ("fence.proxy.async.shared::cta;", "", r"fence\.proxy\.async by the writing threads"),
        ("fence.proxy", "elect.sync _|p9, -1; @p9 fence.proxy", r"fence\.proxy\.async by the writing threads"),
        ("bar.sync 0;", "", "race"),
        ("fence.proxy.async.shared::cta;\nbar.sync 0;", "bar.sync 0;\nfence.proxy.async.shared::cta;", r"fence\.proxy\.async"),
        ("wgmma.commit_group", "mov.b32 r100, 0;\nwgmma.commit_group", "written while"),
        ("wgmma.wait_group", "mov.b32 r200, 1; st.shared.b32 [r2], r200;\nwgmma.wait_group", "race: this write(.|\n)*wgmma of warp group 0"),
        ("mov.pred p3, 0;", "mov.pred p3, 1;", "read before it is written"),
        ("wgmma.fence", "setp.lt.u32 p5, r0, 64; @p5 bra E;\nwgmma.fence", "deadlock"),
    ],
)  # fmt: skip
def test_wgmma_faults(old: str, new: str, message: str) -> None:
    text, args, _ = simple()
    assert old in text
    text = text.replace(old, new, 1).replace("ret;", "E: ret;")
    with pytest.raises(SimulationError, match=message):
        run(text, *args, shared=6144)


def test_wgmma_reads_outside_shared_memory() -> None:
    text, args, _ = simple()
    with pytest.raises(SimulationError, match="outside"):
        run(text.replace("add.u64 d7, d5, 0;", "add.u64 d7, d5, 400;"), *args, shared=6144)
