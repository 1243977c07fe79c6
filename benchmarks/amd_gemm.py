"""The hot loop of a matrix product for AMD's machines, mimw beside Triton: which instructions it is made of, bank conflicts, spills.

    python -m benchmarks.amd_gemm

256x256x64 bf16 for gfx942 and gfx950, 8 waves, K in steps of 64 on both sides; B's rows are contiguous. No device is needed. Bars: no
spill; not more instructions in the loop than Triton's. Triton is the installed one (extra `peers`), and those whose Python interpreters
MIMW_TRITON_PYTHON names (separated by colons). `llvm-mca` (PATH, or MIMW_LLVM_MCA) adds a static schedule where it knows the machine; it lets
`s_waitcnt lgkmcnt` wait for global loads, which the machines do not (they count on vmcnt alone), so that only loops with buffer loads compare.

Both kernels run in the simulator of machine code, which gives the addresses of every access of shared memory: an access goes in groups of
lanes that ask for 128 bytes, neighbours (for 16-byte reads lanes 0-3 with 20-23, 4-7 with 16-19 and so on, as AMD describes for MI300X), and a
group takes as many turns as the fullest of 32 banks has different words; turns beyond the first are conflicts. The same rule for all.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import mimw
import mimw.language as ml
from mimw.signature import SHORT
from mimw.sim.amdgcn.errors import SimulationError
from mimw.sim.amdgcn.lds import Lds
from mimw.sim.amdgcn.run import run

BLOCK = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 64}
TARGETS = ("gfx942", "gfx950")
WARPS, STAGES = 8, 2
BANKS, GROUP_BYTES = 32, 128


@mimw.kernel
def gemm(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: ml.constexpr, BLOCK_N: ml.constexpr, BLOCK_K: ml.constexpr,
):  # fmt: skip
    offs_m = ml.program_id(0) * BLOCK_M + ml.arange(0, BLOCK_M)
    offs_n = ml.program_id(1) * BLOCK_N + ml.arange(0, BLOCK_N)
    offs_k = ml.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :]
    acc = ml.zeros((BLOCK_M, BLOCK_N), dtype=ml.float32)
    for _ in range(0, K, BLOCK_K):
        acc = ml.dot(ml.load(a_ptrs), ml.load(b_ptrs), acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
    ml.store(c_ptrs, acc.to(c_ptr.dtype.element_ty))


@mimw.kernel
def gemm_by_copies(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: ml.constexpr, BLOCK_N: ml.constexpr, BLOCK_K: ml.constexpr,
):  # fmt: skip
    """As `gemm`, with the copies of the next trip written out."""
    offs_m = ml.program_id(0) * BLOCK_M + ml.arange(0, BLOCK_M)
    offs_n = ml.program_id(1) * BLOCK_N + ml.arange(0, BLOCK_N)
    offs_k = ml.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :]
    a_ring = ml.local_alloc((BLOCK_M, BLOCK_K), ml.dtype_of(a_ptr), 2)
    b_ring = ml.local_alloc((BLOCK_K, BLOCK_N), ml.dtype_of(b_ptr), 2)
    acc = ml.alloc_accumulator((BLOCK_M, BLOCK_N), ml.float32)
    trips = ml.cdiv(K, BLOCK_K)
    ml.async_load(a_ptrs, a_ring[0])
    ml.async_load(b_ptrs, b_ring[0])
    ml.async_load_commit_group()
    for trip in range(trips - 1):
        ml.async_load_wait_group(0)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
        ml.async_load(a_ptrs, a_ring[(trip + 1) & 1])
        ml.async_load(b_ptrs, b_ring[(trip + 1) & 1])
        ml.async_load_commit_group()
        acc = ml.async_dot_wait(0, ml.async_dot(a_ring[trip & 1], b_ring[trip & 1], acc))
    ml.async_load_wait_group(0)
    acc = ml.async_dot_wait(0, ml.async_dot(a_ring[(trips - 1) & 1], b_ring[(trips - 1) & 1], acc))
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
    ml.store(c_ptrs, acc.to(c_ptr.dtype.element_ty))


class Candidate:
    """A compiled kernel: its text, its code object, bytes of shared memory that the code object does not state, spare arguments."""

    def __init__(self, name: str, text: str, image: bytes, shared: int, spare: int) -> None:
        self.name = name
        self.text = text
        self.image = image
        self.shared = shared
        self.spare = spare

    @functools.cached_property
    def loop(self) -> list[str]:
        """The instructions of the loop that multiplies."""
        return hot_loop(self.text)

    @property
    def spills(self) -> int:
        """Accesses of scratch memory in the whole kernel."""
        return len(re.findall(r"^\s*(?:scratch_|buffer_\w+ .*\boffen\b.* off, s\[0:3\])", self.text, re.MULTILINE))


def ours(target: str, short: bool = True) -> Candidate:
    """mimw's; `short` promises what a launch finds by itself, integers below 2^20, and so buffer instructions (Triton's promise: arrays
    below 2 GiB)."""
    types = ["*bf16:16"] * 3 + [f"i32:16<{SHORT}" if short else "i32:16"] * 6
    made = gemm.compile(types, BLOCK, target=target, num_warps=WARPS, num_stages=STAGES)
    name = "mimw, buffers" if short else "mimw"
    return Candidate(name, str(made.asm["amdgcn"]), bytes(made.asm["hsaco"]), 0, 0)  # type: ignore[arg-type]


def by_copies(target: str) -> Candidate:
    """mimw's, straight into shared memory as the kernel says; two slots of this tile want more of it than gfx942 has."""
    types = ["*bf16:16"] * 3 + [f"i32:16<{SHORT}"] * 6
    made = gemm_by_copies.compile(types, BLOCK, target=target, num_warps=WARPS)
    return Candidate("mimw, async_load", str(made.asm["amdgcn"]), bytes(made.asm["hsaco"]), 0, 0)  # type: ignore[arg-type]


def tritons(python: str) -> dict[str, list[Candidate]]:
    """Target to what the Triton of an interpreter makes: with global addresses, and with buffer resources."""
    script = Path(__file__).with_name("triton_amd_gemm.py")
    done = subprocess.run([python, str(script)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    out: dict[str, list[Candidate]] = {}
    for target in TARGETS:
        for key, note in ((target, ""), (f"{target} buffers", ", buffers")):
            part = found[key]
            name = f"Triton {found['version']}{note}"
            out.setdefault(target, []).append(
                Candidate(name, part["text"], bytes.fromhex(part["image"]), part["shared"], 2)
            )
    return out


def interpreters() -> list[str]:
    """Pythons that have a Triton."""
    from importlib.util import find_spec

    own = [sys.executable] if find_spec("triton") else []
    return own + [path for path in os.environ.get("MIMW_TRITON_PYTHON", "").split(":") if path]


# --- the loop


def hot_loop(text: str) -> list[str]:
    """The instructions of the smallest stretch from a label to a branch back to it that holds matrix products."""
    lines = [line.split(";")[0].strip() for line in text.splitlines()]
    labels: dict[str, int] = {}
    loops: list[list[str]] = []
    for i, line in enumerate(lines):
        if line.endswith(":"):
            labels[line[:-1]] = i
        branch = re.match(r"s_c?branch\w*\s+([\w.$]+)", line)
        if branch and branch[1] in labels:
            body = lines[labels[branch[1]] : i + 1]
            body = [item for item in body if item and not item.endswith(":") and not item.startswith(".")]
            if any(item.startswith("v_mfma") for item in body):
                loops.append(body)
    if not loops:
        raise ValueError("no loop with matrix products")
    return min(loops, key=len)


KINDS: tuple[tuple[str, str], ...] = (
    ("mfma", "v_mfma"),
    ("LDS read", r"ds_read|ds_load"),
    ("LDS write", r"ds_write|ds_store"),
    ("global", r"global_|buffer_"),
    ("scratch", "scratch_"),
    ("wait", "s_waitcnt"),
    ("nop", "s_nop"),
    ("barrier", "s_barrier"),
    ("branch", r"s_c?branch"),
    ("vector", "v_"),
    ("scalar", "s_"),
)
"""Columns of the table: the first pattern that matches an opcode."""


def kinds_of(loop: list[str]) -> Counter[str]:
    """How many instructions of each kind a loop has."""
    return Counter(next((kind for kind, pattern in KINDS if re.match(pattern, item)), "other") for item in loop)


# --- bank conflicts


def lane_groups(width: int, read: bool) -> list[list[int]]:
    """Which lanes of a wave are served together when each asks for `width` bytes."""
    if read and width == 16:
        return [[half + 4 * i + k for i in pair for k in range(4)]
                for half in (0, 32) for pair in ((0, 5), (1, 4), (2, 7), (3, 6))]  # fmt: skip
    size = min(64, GROUP_BYTES // width)
    return [list(range(first, first + size)) for first in range(0, 64, size)]


def turns(addresses: Any, width: int, read: bool) -> tuple[int, int]:
    """(turns, turns without conflicts) of one wave's access; byte addresses of 64 lanes."""
    words = addresses[:, None] // 4 + np.arange(max(1, width // 4))
    groups = lane_groups(max(4, width), read)
    total = sum(int(np.bincount(np.unique(words[group]) % BANKS).max()) for group in groups)
    return total, len(groups)


class Turns:
    """Turns of shared memory, with and without conflicts, for reads and writes."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self.least: Counter[str] = Counter()

    def note(self, kind: str, x: Any, addresses: Any, width: int) -> None:
        """Count an access of some waves."""
        for row in x.full(addresses).astype(np.int64):
            taken, least = turns(row, width, kind == "read")
            self.taken[kind] += taken
            self.least[kind] += least


@contextmanager
def noting(found: Turns) -> Any:
    """While this is open, accesses of shared memory are counted."""
    read, write = Lds.read, Lds.write

    def counted_read(self: Lds, x: Any, addr: Any, width: int, mask: Any) -> Any:
        found.note("read", x, addr, width)
        return read(self, x, addr, width, mask)

    def counted_write(self: Lds, x: Any, addr: Any, values: Any, width: int, mask: Any, dma: bool = False) -> None:
        found.note("write", x, addr, width)
        write(self, x, addr, values, width, mask, dma)

    Lds.read, Lds.write = counted_read, counted_write
    try:
        yield
    finally:
        Lds.read, Lds.write = read, write


def simulated(candidate: Candidate, trips: int) -> Turns:
    """Run one workgroup for some trips; the product must be right. `SimulationError` for a missing wait, a race or a hazard."""
    import ml_dtypes

    m, n, k = BLOCK["BLOCK_M"], BLOCK["BLOCK_N"], trips * BLOCK["BLOCK_K"]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    c = np.zeros((m, n), ml_dtypes.bfloat16)
    found = Turns()
    raw = [array.view(np.uint16) for array in (a, b, c)]
    args = [*raw, m, n, k, k, n, n, *[0] * candidate.spare]
    with noting(found):
        run(candidate.image, None, (1, 1, 1), (64 * WARPS, 1, 1), args, shared_bytes=candidate.shared)
    want = a.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    if (np.abs(c.astype(np.float64) - want) > 2**-8 * np.abs(want) + 2**-20 * bound).any():
        raise AssertionError(f"{candidate.name}: the product is wrong")
    return found


def conflicts(candidate: Candidate) -> dict[str, tuple[float, float]]:
    """ "read" and "write" to (turns, turns without conflicts) of one wave in one trip."""
    few, many = simulated(candidate, 3), simulated(candidate, 5)
    return {
        kind: ((many.taken[kind] - few.taken[kind]) / 2 / WARPS, (many.least[kind] - few.least[kind]) / 2 / WARPS)
        for kind in ("read", "write")
    }


# --- llvm-mca


def static_schedule(candidate: Candidate, target: str) -> str:
    """Cycles of a trip as llvm-mca sees them, or why there are none."""
    tool = os.environ.get("MIMW_LLVM_MCA") or shutil.which("llvm-mca")
    if not tool:
        return "no llvm-mca"
    command = [tool, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-iterations=100"]
    loop = [item for item in candidate.loop if not item.startswith(("s_cbranch", "s_branch"))]
    done = subprocess.run(command, input="\n".join(loop) + "\n", capture_output=True, text=True, check=False)
    cycles = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if done.returncode or not cycles or "not a recognized processor" in done.stderr:
        return f"llvm-mca does not know {target}"
    return f"{int(cycles[1]) / 100:.0f} cycles"


def report(target: str, candidates: list[Candidate], say: Callable[[str], None] = print) -> None:
    """One table."""
    say(f"{target}: {'x'.join(map(str, BLOCK.values()))} bf16, {WARPS} waves; instructions of one trip")
    header = " ".join(f"{kind:>9}" for kind, _ in KINDS)
    say(f"  {'':<24}{'all':>5} {'a mfma':>6} {header} {'spills':>7}")
    for candidate in candidates:
        counts = kinds_of(candidate.loop)
        row = " ".join(f"{counts[kind]:9}" for kind, _ in KINDS)
        each = len(candidate.loop) / counts["mfma"]
        say(f"  {candidate.name:<24}{len(candidate.loop):5} {each:6.2f} {row} {candidate.spills:7}")
    say("  turns of LDS a wave and trip (least possible); static schedule of a trip")
    for candidate in candidates:
        try:
            parts = [f"{kind}s {taken:g} ({least:g})" for kind, (taken, least) in conflicts(candidate).items()]
        except SimulationError as error:
            parts = [f"simulator: {str(error).splitlines()[0]}"]
        say(f"  {candidate.name:<24} {', '.join(parts)}; {static_schedule(candidate, target)}")


def main() -> None:
    peers = [tritons(python) for python in interpreters()]
    if not peers:
        print("no Triton (extra `peers`): mimw alone")
    for target in TARGETS:
        copies = [by_copies(target)] if target == "gfx950" else []
        report(
            target, [ours(target, short=False), ours(target), *copies, *(c for found in peers for c in found[target])]
        )


if __name__ == "__main__":
    main()
