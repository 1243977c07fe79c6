"""Wait states that the program must put between dependent instructions, because the hardware does not wait by itself.

Checked on the code, along every path that branches allow: for each instruction that can cause a hazard, what may execute
within its window is looked at. An instruction counts one wait state, ``s_nop n`` n + 1. Numbers from "AMD Instinct MI300
Instruction Set Architecture", sections "Manually inserted wait states" and "Dependency resolution: required independent
instructions" of the matrix chapter, and for gfx950 from what LLVM's compiler inserts (passes + 4 instead of + 3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mimw.sim.amdgcn.decode import EXEC, M0, VCC, Const, Inst, Operand, Reg
from mimw.sim.amdgcn.errors import SimulationError
from mimw.sim.amdgcn.program import Program
from mimw.sim.amdgcn.state import SCALAR, name_of, slot_of

_MFMA = re.compile(r"v_(?:mfma_(?:scale_)?|smfmac_)(f32|i32|f64)_(\d+)x\d+x(\d+)_?(?:(\d+)b_)?(\w+)")
_TRANS = re.compile(r"v_(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos|exp_legacy|log_legacy)_(f16|f32|f64)")
_LANE_READS = frozenset(["v_readlane_b32", "v_readfirstlane_b32"])
_LANE_OPS = _LANE_READS | {"v_writelane_b32"}
_DOT = re.compile(r"v_dot\d")
_WIDE_STORE = re.compile(r"(global|flat|scratch|buffer)_(store_dwordx[34]|atomic_cmpswap_x2)")
_VMEM = ("global_", "flat_", "scratch_", "buffer_")
_EXEC = frozenset([SCALAR + EXEC, SCALAR + EXEC + 1])
_VCC = frozenset([SCALAR + VCC, SCALAR + VCC + 1])
_M0 = frozenset([SCALAR + M0])


def slots(op: Operand) -> frozenset[int]:
    """The registers of an operand."""
    if not isinstance(op, Reg):
        return frozenset()
    first = slot_of(op)
    return frozenset(range(first, first + op.count))


class Site:
    """One instruction as the rules see it: what it reads and writes, which unit it is of, and what its matrix parts are."""

    __slots__ = (
        "inst",
        "mfma",
        "reads",
        "scalar_reads",
        "scalar_writes",
        "sources",
        "valu",
        "vector_writes",
        "vmem",
        "writes",
    )

    def __init__(self, inst: Inst, reads: set[int], writes: set[int], arch: str) -> None:
        self.inst = inst
        self.reads, self.writes = frozenset(reads), frozenset(writes)
        name = inst.mnemonic
        self.mfma = Matrix(inst, arch) if _MFMA.fullmatch(name) else None
        self.valu = name.startswith("v_") and self.mfma is None
        self.vmem = name.startswith(_VMEM)
        self.scalar_writes = frozenset(s for s in writes if s >= SCALAR)
        self.scalar_reads = frozenset(s for s in reads if s >= SCALAR)
        self.vector_writes = frozenset(s for s in writes if s < SCALAR)
        self.sources = [slots(op) for op in inst.operands[1:4]] if self.mfma else []

    @property
    def wait_states(self) -> int:
        """How many wait states pass while it executes."""
        if self.inst.mnemonic != "s_nop":
            return 1
        op = self.inst.operands[0]
        return int(op.value) + 1 if isinstance(op, Const) else 1


class Matrix:
    """The timing of a matrix instruction: passes (4 cycles each), and whether it is f64, or of the fast (xdl) kind."""

    __slots__ = ("double", "four", "passes", "xdl")

    def __init__(self, inst: Inst, arch: str) -> None:
        found = _MFMA.fullmatch(inst.mnemonic)
        assert found is not None
        rows, k, blocks, kind = int(found[2]), int(found[3]), int(found[4] or 1), found[5]
        self.double, self.four = found[1] == "f64", rows == 4
        self.xdl = not self.double and kind != "f32"
        self.passes = self._passes(inst, arch, rows, k, blocks, kind)

    def _passes(self, inst: Inst, arch: str, rows: int, k: int, blocks: int, kind: str) -> int:
        if self.double:
            return 4 if rows == 4 else 16 if arch == "gfx950" else 8
        if rows == 4:
            return 2
        if kind == "f8f6f4":
            slow = min(inst.number("cbsz"), inst.number("blgp")) < 2
            return (16 if rows == 32 else 8) if slow else (8 if rows == 32 else 4)
        if not self.xdl or blocks > 1:
            return 16 if rows == 32 else 8
        return 8 if rows == 32 else 4

    def read_wait(self, arch: str) -> int:
        """Wait states before anything else reads (or overwrites) the result."""
        if not self.xdl:
            return self.passes + 2
        return self.passes + 3 + int(arch == "gfx950" and self.passes != 2)

    def next_wait(self, arch: str) -> int:
        """Wait states before another matrix instruction reads a part of the result as its accumulator."""
        if not self.xdl:
            return self.passes
        return self.passes + 1 + int(arch == "gfx950" and self.passes != 2)


def check_hazards(program: Program, sites: dict[int, Site]) -> None:
    """Raise `SimulationError` for the first pair of instructions that needs more wait states than some path has."""
    follow = {i: _followers(program, i) for i in sites}
    for index, site in sites.items():
        window = _window(site)
        if window:
            _look_ahead(program.arch, sites, follow, index, window)


def _followers(program: Program, index: int) -> list[int]:
    name = program.insts[index].mnemonic
    if name == "s_endpgm" or name in ("s_setpc_b64", "s_swappc_b64"):
        return []
    out = [] if name == "s_branch" else [index + 1]
    if program.is_branch(index):
        out.append(program.target(index))
    return out


def _window(site: Site) -> int:
    """How many wait states behind an instruction may be in danger."""
    if site.mfma:
        return 20
    if site.valu:
        return 5 if site.scalar_writes else 3
    if _WIDE_STORE.match(site.inst.mnemonic):
        return 2
    return 2 if site.scalar_writes & _M0 or site.inst.mnemonic.startswith("s_setreg") else 0


def _look_ahead(arch: str, sites: dict[int, Site], follow: dict[int, list[int]], index: int, window: int) -> None:
    first = sites[index]
    best: dict[int, int] = {}
    todo = [(i, 0) for i in follow[index]]
    while todo:
        at, passed = todo.pop()
        if at not in sites or best.get(at, window) <= passed:
            continue
        best[at] = passed
        site = sites[at]
        needed, why = needed_wait_states(arch, first, site)
        if needed > passed:
            raise SimulationError(
                f"hazard: {why} needs {needed} wait states, {passed} lie between; `{first.inst.text}`"
                f" comes before (s_nop {needed - passed - 1} is missing)",
                "hazard",
                site.inst,
            )
        after = passed + site.wait_states
        # A branch that is taken costs several cycles more: counted as two.
        todo += [(i, after + int(i != at + 1)) for i in follow[at]]


# --- the rules


def needed_wait_states(arch: str, first: Site, then: Site) -> tuple[int, str]:
    """(wait states, reason) that must lie between two instructions when one follows the other; 0 for none."""
    if first.mfma:
        return _after_matrix(arch, first, first.mfma, then)
    if first.valu:
        return max(_after_vector(first, then), _vector_to_scalar(first, then), _after_exec(first, then))
    if _WIDE_STORE.match(first.inst.mnemonic) and then.valu:
        data = slots(first.inst.operands[0 if first.inst.mnemonic.startswith("buffer") else 1])
        if data & then.writes and not _buffer_with_register(first.inst):
            return 2, "a write of the data of a wide store"
        return 0, ""
    return _after_scalar(first, then)


def _buffer_with_register(inst: Inst) -> bool:
    """A buffer store whose offset is a scalar register reads its data in time."""
    return inst.mnemonic.startswith("buffer") and isinstance(inst.operands[3], Reg)


def _after_matrix(arch: str, first: Site, matrix: Matrix, then: Site) -> tuple[int, str]:
    result = first.vector_writes
    if then.mfma:
        return _matrix_to_matrix(arch, first, matrix, then)
    memory = then.vmem or then.inst.mnemonic.startswith("ds_")
    if (then.valu or memory) and then.reads & result:
        if matrix.double:
            wait = (9 if matrix.four else 18) if memory else _double_wait(arch, matrix)
            return wait, f"a read of the matrix result {_names(then.reads & result)}"
        return matrix.read_wait(arch), f"a read of the matrix result {_names(then.reads & result)}"
    if not then.valu:
        return 0, ""
    if then.vector_writes & result:
        wait = _double_wait(arch, matrix) if matrix.double else matrix.read_wait(arch)
        return wait, f"an overwrite of the matrix result {_names(then.vector_writes & result)}"
    if not matrix.double and len(first.sources) > 2 and then.vector_writes & first.sources[2]:
        if matrix.passes == 4 and not matrix.xdl:
            return 0, ""
        return matrix.passes - 1, f"an overwrite of the accumulator {_names(then.vector_writes & first.sources[2])}"
    return 0, ""


def _double_wait(arch: str, matrix: Matrix) -> int:
    return 6 if matrix.four else 19 if arch == "gfx950" else 11


def _matrix_to_matrix(arch: str, first: Site, matrix: Matrix, then: Site) -> tuple[int, str]:
    """A and B need the whole result; an accumulator that is exactly the result is forwarded."""
    result, second = first.vector_writes, then.mfma
    assert second is not None
    needed, why = 0, ""
    if any(source & result for source in then.sources[:2]):
        needed = _double_wait(arch, matrix) if matrix.double else matrix.read_wait(arch)
        why = "a matrix source that is a matrix result"
    accumulator = then.sources[2] if not then.inst.mnemonic.startswith("v_smfmac") else then.vector_writes
    if not accumulator & result:
        return needed, why
    if accumulator == result:
        wait = 4 if matrix.double and matrix.four and second.double and second.four else 2 if matrix.passes == 2 else 0
    elif matrix.double:
        wait = 0 if second.xdl else 4 if matrix.four else 17 if arch == "gfx950" else 9
    else:
        wait = 0 if second.xdl and not matrix.xdl else matrix.next_wait(arch)
    return max((needed, why), (wait, "an accumulator that is a part of a matrix result"))


def _after_vector(first: Site, then: Site) -> tuple[int, str]:
    """A vector register written by the vector unit."""
    shared = first.vector_writes & then.reads
    if not shared:
        return 0, ""
    name = _names(shared)
    if then.inst.encoding == "dpp" and shared & slots(then.inst.operands[1]):
        return 2, f"a DPP read of {name}"
    if then.mfma and not _DOT.match(first.inst.mnemonic):
        return 2, f"a matrix read of {name}"
    if then.inst.mnemonic.startswith("v_permlane"):
        return 2, f"a row swap of {name}"
    if _DOT.match(first.inst.mnemonic) and then.valu and first.inst.mnemonic != then.inst.mnemonic:
        return 3, f"a read of the dot product {name}"
    if not then.valu:
        return 0, ""
    if then.inst.mnemonic in _LANE_READS:
        return 1, f"a lane read of {name}"
    if _TRANS.fullmatch(first.inst.mnemonic) and not _TRANS.fullmatch(then.inst.mnemonic):
        return 1, f"a read of the transcendental result {name}"
    if _writes_part(first.inst):
        return 1, f"a read of {name}, of which a part was written"
    return 0, ""


def _writes_part(inst: Inst) -> bool:
    """An instruction that moves its result within the register: by SDWA, or by the op_sel bits behind the sources'."""
    if inst.encoding == "sdwa":
        return inst.mods.get("dst_sel", "DWORD") not in ("DWORD", "BYTE_0", "WORD_0")
    given = inst.mods.get("op_sel")
    if not isinstance(given, list) or inst.mnemonic.startswith(("v_pk_", "v_dot", "v_fma_mix", "v_mad_mix")):
        return False
    if inst.mnemonic.startswith("v_cvt_"):
        return any(given[2:])
    return len(given) >= len(inst.operands) and bool(given[len(inst.operands) - 1])


def _vector_to_scalar(first: Site, then: Site) -> tuple[int, str]:
    """A scalar register (or VCC) written by the vector unit."""
    shared = first.scalar_writes & then.scalar_reads
    if not shared:
        return 0, ""
    name = _names(shared)
    if then.vmem:
        return 5, f"a vector memory read of {name}"
    if not then.valu:
        return 0, ""
    if then.inst.mnemonic in ("v_readlane_b32", "v_writelane_b32") and shared & slots(then.inst.operands[2]):
        return 4, f"a lane selected by {name}"
    if then.inst.mnemonic.startswith("v_div_fmas") and shared & _VCC:
        return 4, "v_div_fmas's read of VCC"
    return 2, f"a vector read of {name}"


def _after_exec(first: Site, then: Site) -> tuple[int, str]:
    """EXEC written by the vector unit (v_cmpx)."""
    if not first.scalar_writes & _EXEC:
        return 0, ""
    if then.inst.encoding == "dpp":
        return 5, "DPP after a vector write of EXEC"
    if then.mfma or then.inst.mnemonic in _LANE_OPS or then.inst.mnemonic.startswith("v_permlane"):
        return 4, f"{then.inst.mnemonic} after a vector write of EXEC"
    return 0, ""


def _after_scalar(first: Site, then: Site) -> tuple[int, str]:
    """M0 before what reads it implicitly, and s_setreg before s_getreg."""
    name = then.inst.mnemonic
    if (
        first.scalar_writes & _M0
        and then.reads & _M0
        and (then.vmem or name.startswith(("ds_", "s_sendmsg", "s_movrel")))
    ):
        return 1, f"{name}'s read of M0"
    if first.inst.mnemonic.startswith("s_setreg") and name.startswith(("s_getreg", "s_setreg")):
        return 2, f"{name} after s_setreg"
    return 0, ""


def _names(found: frozenset[int]) -> str:
    numbers: Sequence[int] = sorted(found)
    first = name_of(numbers[0])
    return first if len(numbers) == 1 else f"{first} to {name_of(numbers[-1])}"
