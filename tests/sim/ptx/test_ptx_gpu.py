"""The same text in the simulator and on the device: equal bits, or equal within the stated bound for matrix sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mimw.sim.ptx.run import run_ptx

from . import test_ptx_mma as mma
from . import test_ptx_pipeline as pipeline
from . import test_ptx_programs as programs
from .device import launch
from .programs import SMEM, frame
from .test_ptx_float import singles, small
from .test_ptx_integer import longs, words

pytestmark = pytest.mark.gpu


def both(text: str, args: list[Any], grid: int, threads: int, shared: int) -> tuple[list[Any], list[Any]]:
    """The arguments after a run in the simulator and on the device."""
    here, there = ([a.copy() if isinstance(a, np.ndarray) else a for a in args] for _ in range(2))
    run_ptx(text, "k", (grid, 1, 1), here, shared_bytes=shared)
    launch(text, "k", (grid, 1, 1), (threads, 1, 1), there, shared)
    return here, there


def same_bits(text: str, args: list[Any], grid: int = 1, threads: int = 32, shared: int = 0) -> None:
    for a, b in zip(*both(text, args, grid, threads, shared), strict=True):
        if isinstance(a, np.ndarray):
            assert a.tobytes() == b.tobytes()


INSTRUCTIONS = [
    *(f"{op}.{mode}.f32 f9, f1, f2;" for op in ("add", "sub", "mul", "div") for mode in ("rn", "rz", "rm", "rp")),
    *(f"fma.{mode}.f32 f9, f1, f2, f3;" for mode in ("rn", "rz", "rm", "rp", "rn.ftz", "rn.sat")),
    *(f"{op}.f32 f9, f1, f2;" for op in ("min", "max", "min.NaN", "max.NaN", "max.ftz", "min.xorsign.abs")),
    "sqrt.rn.f32 f9, f1;", "rcp.rn.f32 f9, f1;", "cvt.rni.f32.f32 f9, f1;", "cvt.sat.f32.f32 f9, f1;", "cvt.rna.tf32.f32 r39, f1; mov.b32 f9, r39;",
    *(f"cvt.{mode}.{kind}.f32 r39, f1; mov.b32 f9, r39;" for mode in ("rni", "rzi", "rmi", "rpi") for kind in ("s32", "u32")),
    *(f"cvt.{mode}.{kind}x2.f32 r39, f1, f2; mov.b32 f9, r39;" for mode in ("rn", "rz", "rn.relu") for kind in ("f16", "bf16")),
    *(f"cvt.rn.satfinite.{kind}x2.f32 h9, f1, f2; mov.b32 r39, {{h9, h9}}; mov.b32 f9, r39;" for kind in ("e4m3", "e5m2")),
    *(f"{op}.rn.{kind}x2 r39, r1, r2; mov.b32 f9, r39;" for op in ("add", "sub", "mul") for kind in ("f16", "bf16")),
    *(f"fma.rn{relu}.{kind}x2 r39, r1, r2, r3; mov.b32 f9, r39;" for relu in ("", ".relu") for kind in ("f16", "bf16")),
    *(f"{op}.{kind}x2 r39, r1, r2; mov.b32 f9, r39;" for op in ("min", "max.NaN") for kind in ("f16", "bf16")),
    *(f"{op} r39, r1, r2; mov.b32 f9, r39;" for op in ("div.s32", "rem.s32", "div.u32", "rem.u32", "mul.hi.s32", "mul24.hi.s32", "sub.sat.s32")),
    *(f"bfe.{kind} r39, r1, r2, r3; mov.b32 f9, r39;" for kind in ("s32", "u32")), "bfi.b32 r39, r1, r2, r3, r1; mov.b32 f9, r39;",
    "prmt.b32 r39, r1, r2, r3; mov.b32 f9, r39;", "bfind.s32 r39, r1; mov.b32 f9, r39;", "sad.s32 r39, r1, r2, r3; mov.b32 f9, r39;",
    "dp4a.s32.u32 r39, r1, r2, r3; mov.b32 f9, r39;", "shl.b32 r39, r1, r2; mov.b32 f9, r39;", "shr.s32 r39, r1, r2; mov.b32 f9, r39;",
    "add.cc.u32 r39, r1, r2; addc.u32 r39, r3, r1; mov.b32 f9, r39;", "sub.cc.u32 r39, r1, r2; subc.u32 r39, r3, r1; mov.b32 f9, r39;",
    "copysign.f32 f9, f1, f2;", "setp.ltu.f32 p1, f1, f2; selp.f32 f9, f1, f2, p1;", "set.le.f32.f32 f9, f1, f2;", "slct.f32.f32 f9, f1, f2, f3;",
    "mad.hi.s32 r39, r1, r2, r3; mov.b32 f9, r39;", "cvt.rz.f32.s32 f9, r1;", "cvt.rp.f16.u32 h9, r1; mov.b32 r39, {h9, h9}; mov.b32 f9, r39;",
]  # fmt: skip


@pytest.mark.parametrize("inst", INSTRUCTIONS)
def test_one_instruction(inst: str) -> None:
    body = "mov.u32 r30, %ctaid.x; shl.b32 r30, r30, 5; add.u32 r0, r0, r30;\n"
    for i in range(3):
        body += f"mad.wide.u32 d5, r0, 4, d{i}; ld.global.b32 r{i + 1}, [d5]; mov.b32 f{i + 1}, r{i + 1};\n"
    text = frame(body + inst + "\nmad.wide.u32 d5, r0, 4, d3; st.global.f32 [d5], f9;", 4)
    sources = [
        np.concatenate([singles(50 + i), words(60 + i).view(np.float32), small(70 + i).view(np.float32)])
        for i in range(3)
    ]
    same_bits(text, [*sources, np.zeros(len(sources[0]), np.float32)], grid=len(sources[0]) // 32)


@pytest.mark.parametrize(
    "inst",
    [
        "div.s64",
        "rem.s64",
        "div.u64",
        "rem.u64",
        "mul.hi.s64",
        "mul.hi.u64",
        "fma.f64",
        "add.rz.f64",
        "mul.rm.f64",
        "div.rp.f64",
    ],
)
def test_one_64_bit_instruction(inst: str) -> None:
    code = f"{inst} d20, d21, d22;" if "f64" not in inst else f"{inst} g3, g1, g2; mov.b64 d20, g3;"
    code = "fma.rn.f64 g3, g1, g2, g2; mov.b64 d20, g3;" if inst == "fma.f64" else code
    text = frame(
        "mad.wide.u32 d5, r0, 8, d0; mad.wide.u32 d6, r0, 8, d1; mad.wide.u32 d7, r0, 8, d2;"
        f"ld.global.b64 d21, [d5]; ld.global.b64 d22, [d6]; mov.b64 g1, d21; mov.b64 g2, d22; {code} st.global.b64 [d7], d20;",
        3, 96,
    )  # fmt: skip
    a, b = longs(80), longs(81)
    if "f64" in inst:
        a, b = (np.random.default_rng(i).standard_normal(96).view(np.uint64) for i in (1, 2))
    same_bits(text, [a, b, np.zeros(96, np.uint64)], threads=96)


def test_programs() -> None:
    x, y = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
    same_bits(programs.TRANSPOSE, [x, y], threads=128, shared=512)
    same_bits(programs.PIPELINE, [np.zeros((5, 32), np.uint32)], threads=64, shared=256)
    same_bits(programs.COPY, [np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)], threads=64, shared=1024)
    for trans in ("", ".trans"):
        text = frame(mma.LDMATRIX.format(trans=trans), 3, 32, SMEM)
        same_bits(
            text, [np.arange(256, dtype=np.uint16), np.zeros(256, np.uint16), np.zeros(256, np.uint16)], shared=1024
        )


@pytest.mark.parametrize("registers_a", [False, True])
def test_wgmma(registers_a: bool) -> None:
    text, args, _ = mma.simple(registers_a, True)
    here, there = both(text, args, 1, 128, 6144)
    a, b = (here[2].view(np.float32), there[2].view(np.float32))
    assert np.abs(a - b).max() <= 16 * 2.0**-22 * 64


def test_warp_specialised_matmul() -> None:
    args, _ = pipeline.arguments(2, 320)
    shared = pipeline.STAGES * pipeline.STAGE + 32
    here, there = both(pipeline.text(), args, 2, 256, shared)
    assert np.allclose(here[2].view(np.float32), there[2].view(np.float32), rtol=0, atol=2.0**-22 * 16 * 20 * 64)
