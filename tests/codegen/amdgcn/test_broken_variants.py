"""mimw's own kernels for AMD with one wait, barrier or wait state too few: the simulator of machine code tells, or nothing hangs on it.

Every ``s_waitcnt``, ``s_barrier`` and ``s_nop`` of the kernels below is left out in turn, and then weakened by one where that leaves something,
on both parts. What is not told must be redundant by one of the rules of `redundant`, which look at the text alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.sim.amdgcn.errors import SimulationError
from tests.amdgcn_kit import run_compiled
from tests.test_examples import load

TARGETS = ("gfx942", "gfx950")
SYNC = re.compile(r"\s+(s_waitcnt|s_barrier|s_nop)\b")


@mimw.kernel
def softmax(x_ptr, out_ptr, columns, BLOCK: ml.constexpr):
    at = ml.program_id(0) * columns + ml.arange(0, BLOCK)
    inside = ml.arange(0, BLOCK) < columns
    x = ml.load(x_ptr + at, mask=inside, other=float("-inf"))
    e = ml.exp(x - ml.max(x, 0))
    ml.store(out_ptr + at, e / ml.sum(e, 0), mask=inside)


@mimw.kernel
def running_sums(x_ptr, out_ptr, R: ml.constexpr, C: ml.constexpr):
    """Sums along both axes, the result turned: scans, and conversions through shared memory."""
    rows, columns = ml.arange(0, R)[:, None], ml.arange(0, C)[None, :]
    x = ml.load(x_ptr + rows * C + columns)
    y = ml.cumsum(ml.cumsum(x, 1), 0)
    ml.store(out_ptr + ml.arange(0, C)[:, None] * R + ml.arange(0, R)[None, :], ml.trans(y))


@mimw.kernel
def counted(x_ptr, counts_ptr, seen_ptr, n, BLOCK: ml.constexpr):
    """Atomics whose answers are used, in a loop."""
    for i in range(0, n, BLOCK):
        at = i + ml.arange(0, BLOCK)
        inside = at < n
        x = ml.load(x_ptr + at, mask=inside, other=0)
        old = ml.atomic_add(counts_ptr + x, 1, mask=inside)
        ml.store(seen_ptr + at, ml.where(old >= 0, x // 3, -1), mask=inside)


class Case:
    """A compiled kernel with its launch: `arrays` and numbers, what must come out."""

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], args: Callable[[], list[Any]], want: list[Any], close: float
    ) -> None:
        self.kernel = kernel
        self.grid = grid
        self.args = args
        self.want = want
        self.close = close
        self.outputs: list[Any] = []  # where the launch writes, if not in its arguments
        self.lines: list[str] = str(kernel.asm["amdgcn"]).splitlines()

    @functools.cached_property
    def syncs(self) -> list[int]:
        """The lines that are left out in turn."""
        return [i for i, line in enumerate(self.lines) if SYNC.match(line)]

    def told(self, at: int = 0, instead: str | None = None) -> str:
        """What the simulator says of the text with another line `at`: the kind of its complaint, "result", or nothing."""
        lines = list(self.lines)
        if instead is not None:
            lines[at] = instead
        args = self.args()
        try:
            run_compiled(self.kernel, self.grid, args, text="\n".join(lines))
        except SimulationError as error:
            return error.kind
        for array, want in zip(self.outputs or args, self.want, strict=False):
            if want is not None and not np.allclose(array.astype(np.float64), want, rtol=self.close, atol=self.close):
                return "result"
        return ""


def redundant(case: Case, at: int) -> str:
    """Why nothing hangs on the line, by rules that are looked up in the text; empty where something may.

    - A release in front of an atomic (caches are written back, all waves meet) orders what was stored before for whoever reads the
      atomic; an acquire (all waves meet, caches are dropped) what is loaded behind it. In a launch of one workgroup which loads nothing
      that it stores, nobody does. The simulator has no caches to see it by.
    - A wait for all of shared memory is repeated before anything reads it or tells other waves; or what tells them is an arrive that a
      second one at the same barrier follows, behind such a wait; or nothing but an arrive was asked since the last one. The same for a wait for
      copies and two arrives.
    - A wait state behind a label: the branch that leads there costs more than the pass counts for it.
    """
    line = case.lines[at]
    code = [text.split()[0] for text in case.lines[at - 2 : at + 2]]
    release = code[1] == "buffer_wbl2" or code[:2] == ["buffer_wbl2", "s_waitcnt"]
    acquire = code[2] == "s_barrier" and "buffer_inv" in " ".join(case.lines[at + 1 : at + 3])
    outputs = [array for array, want in zip(case.args(), case.want, strict=False) if want is not None]
    if (release or acquire) and case.grid == (1,) and not any(array.any() for array in outputs):
        return "what nobody acquires, nobody has to release"
    if "lgkmcnt" in line and "vmcnt" not in line:
        tells = re.compile(r"\s+(ds_(?!write)|s_barrier|s_load|.*lgkmcnt\(0\))")
        following = [text.split() for text in case.lines[at + 1 :] if tells.match(text)][:3]
        if following[0][1:] == ["lgkmcnt(0)"]:
            return "waited for once more before anybody looks"
        both = following[0][:2] == following[-1][:2] and following[0][3:4] == following[-1][3:4]
        if following[0][0] == "ds_add_u32" and following[1][1:] == ["lgkmcnt(0)"] and both:
            return "the phase needs this wave's second arrival too, which waits for all"
        asked = [text.split()[0] for text in case.lines[:at] if re.match(r"\s+(ds_|.*lgkmcnt\(0\))", text)]
        if asked[-2:] == ["s_waitcnt", "ds_add_u32"]:
            return "an arrive is nothing to wait for"
    if "vmcnt" in line and "lgkmcnt" not in line:
        following = [
            text.split() for text in case.lines[at + 1 :] if re.match(r"\s+(ds_|s_barrier|.*vmcnt\(0\))", text)
        ][:3]
        arrives = [words[0] for words in following] == ["ds_add_u32", "s_waitcnt", "ds_add_u32"]
        if arrives and following[0][1:2] == following[2][1:2] and following[0][3:4] == following[2][3:4]:
            return "the phase needs this wave's second arrival too, which waits for all"
    if "s_nop" in line:
        before = case.lines[:at]
        label = max(i for i, text in enumerate(before) if re.match(r"\w+:", text))
        if not any(" v_mfma" in text for text in before[label:]):
            return "behind a branch"
    return ""


def weakened(line: str) -> list[str]:
    """What may become of a line: nothing, one instruction more in flight for each counter, one wait state less."""
    out = [""]
    for found in re.finditer(r"(vm|lgkm)cnt\((\d+)\)", line):
        out.append(line.replace(found[0], f"{found[1]}cnt({int(found[2]) + 1})"))
    nop = re.match(r"(\s+s_nop )(\d+)", line)
    if nop and int(nop[2]):
        out.append(f"{nop[1]}{int(nop[2]) - 1}")
    return out


def product(target: str, block: tuple[int, int, int], rows: bool, warps: int) -> Case:
    m, n, k = block[0], block[1], 4 * block[2]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    want = a.astype(np.float64) @ b.astype(np.float64)
    held = b if rows else np.ascontiguousarray(b.T)
    strides = ["i32:16", "=1"] if rows else ["=1", "i32:16"]
    types = ["*bf16:16", "*bf16:16", "*f32:16", *["i32:16"] * 3, "i32:16", "=1", *strides, "i32:16", "=1"]
    constants = {"BLOCK_M": block[0], "BLOCK_N": block[1], "BLOCK_K": block[2], "GROUP_M": 8}
    made = load("03_matmul.py").matmul_kernel.compile(types, constants, target=target, num_warps=warps, num_stages=2)
    numbers = [m, n, k, k, n if rows else k, n]
    return Case(made, (1,), lambda: [a, held, np.zeros((m, n), np.float32), *numbers], [None, None, want], 1e-3)


def softmax_case(target: str) -> Case:
    x = np.random.default_rng(1).standard_normal((2, 700)).astype(np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    made = softmax.compile(["*f32:16", "*f32:16", "i32"], {"BLOCK": 1024}, target=target, num_warps=4)
    return Case(made, (2,), lambda: [x, np.zeros_like(x), 700], [None, e / e.sum(1, keepdims=True)], 1e-5)


def sums_case(target: str) -> Case:
    x = np.random.default_rng(2).integers(0, 9, (32, 64)).astype(np.int32)
    made = running_sums.compile(["*i32:16", "*i32:16"], {"R": 32, "C": 64}, target=target, num_warps=4)
    want = x.cumsum(1).cumsum(0).T
    return Case(made, (1,), lambda: [x, np.zeros((64, 32), np.int32)], [None, want], 0)


def counted_case(target: str) -> Case:
    x = np.random.default_rng(3).integers(0, 16, 300).astype(np.int32)
    made = counted.compile(["*i32:16", "*i32:16", "*i32:16", "i32"], {"BLOCK": 128}, target=target, num_warps=2)
    args: Callable[[], list[Any]] = lambda: [x, np.zeros(16, np.int32), np.zeros(300, np.int32), 300]  # noqa: E731
    return Case(made, (1,), args, [None, np.bincount(x, minlength=16), x // 3], 0)


SMALL = {"BM": 64, "BN": 64, "BK": 32, "STAGES": 2}


def tasks_case(target: str) -> Case:
    """Example 05: copies by one task, products by others, barriers in shared memory; blocks inside of the tensors and at their edges."""
    module = load("05_warp_specialized_matmul.py")
    types = ["tensor_desc<64x32xf16>", "tensor_desc<32x64xf16>", "tensor_desc<32x64xf16>", "i32"]
    made = module.with_pipeline.compile(types, SMALL, target=target)
    a, b = (np.random.default_rng(4).integers(-4, 5, shape).astype(np.float16) for shape in ((64, 136), (136, 128)))
    a, b = a[:, :135], b[:135, :127]  # rows end at the last place of a vector
    c = np.zeros((64, 128), np.float16)[:, :127]
    grid, args = module.plan(a, b, c, **SMALL)

    def fresh() -> list[Any]:
        c[...] = 0
        return list(args)

    case = Case(made, grid, fresh, [a.astype(np.float64) @ b.astype(np.float64)], 1e-3)
    case.outputs = [c]
    return case


CASES: dict[str, Callable[[str], Case]] = {
    "product, two slots": lambda target: product(target, (64, 64, 32), True, 4),
    "product, one slot": lambda target: product(target, (128, 128, 64), True, 4),
    "product, columns of B": lambda target: product(target, (32, 64, 32), False, 2),
    "softmax": softmax_case,
    "sums": sums_case,
    "counted": counted_case,
    "tasks": tasks_case,
}
VARIED = [(name, target) for name in CASES for target in TARGETS]


@functools.cache
def case_of(name: str, target: str) -> Case:
    """A case, compiled once; untouched it is right."""
    case = CASES[name](target)
    assert not case.told()
    return case


def untold(case: Case, variants: list[tuple[int, str]]) -> list[str]:
    """The variants that neither the simulator nor a rule explains."""
    return [
        f"{at}: {case.lines[at].strip()} -> {instead.strip() or 'nothing'}"
        for at, instead in variants
        if not case.told(at, instead) and not redundant(case, at)
    ]


@pytest.mark.parametrize(("name", "target"), VARIED)
def test_what_is_left_out_is_told(name: str, target: str) -> None:
    case = case_of(name, target)
    every = {"product, one slot": 3, "tasks": 9}.get(name, 1)  # large ones: the deep test takes all
    assert untold(case, [(at, "") for at in case.syncs[::every]]) == []


@pytest.mark.deep
@pytest.mark.parametrize(("name", "target"), VARIED)
def test_what_is_weakened_is_told(name: str, target: str) -> None:
    case = case_of(name, target)
    assert untold(case, [(at, instead) for at in case.syncs for instead in weakened(case.lines[at])]) == []


def test_there_are_many_variants_of_every_kind() -> None:
    lines = [case.lines[at].split()[0] for case in (case_of(*pair) for pair in VARIED) for at in case.syncs]
    assert len(lines) >= 180
    assert all(lines.count(kind) >= 20 for kind in ("s_waitcnt", "s_barrier", "s_nop"))
