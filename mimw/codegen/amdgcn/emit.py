"""Tile IR with layouts to an AMDGCN module: the entry of the AMDGCN code generator.

Owns the frame of a kernel (arguments, workgroup ids, shared memory, facts of the descriptor) and the order: lower, drop dead code, finish.
Assumes that passes have given every tensor a layout and every buffer an offset. Knows no op, save those that ask for the grid.
"""

from __future__ import annotations

import re
from typing import Any

from mimw.codegen.amdgcn.allocation.regalloc import Budget, budget
from mimw.codegen.amdgcn.builder.builder import HIDDEN_GRID, AmdgcnBuilder
from mimw.codegen.amdgcn.builder.printing import RECORDS, STATE, TEXTS
from mimw.codegen.amdgcn.finish import finish
from mimw.codegen.amdgcn.isa import check, resolve
from mimw.codegen.amdgcn.lower import all_lowerings as amdgcn_lowerings
from mimw.codegen.amdgcn.lower.descriptor import argument_fields
from mimw.codegen.amdgcn.lower.task import Words, begin_watch, run_kernel
from mimw.codegen.amdgcn.module import AmdgcnModule, KernelFacts
from mimw.codegen.amdgcn.printer import print_module
from mimw.codegen.lane import bits_of
from mimw.codegen.lowering import FactsLike, Lowering
from mimw.codegen.machine import Function, Inst, dead_code
from mimw.codegen.shared import all_lowerings as shared_lowerings
from mimw.codegen.shared import hang
from mimw.diagnostics import CompilationError
from mimw.ir.core import Function as IrFunction
from mimw.ir.core import Module
from mimw.ir.types import I1, DType, Element, PointerType, TensorDescType
from mimw.target import Target

__all__ = ["emit", "emit_text", "lower_function"]


def emit(module: Module, target: Target, facts: FactsLike, options: dict[str, Any] | None = None) -> AmdgcnModule:
    """The AMDGCN code of a module's kernel.

    `options`: ``entry`` (the kernel's name by default), ``check`` (every instruction against the table; on by default), ``occupancy``
    (workgroups that shall fit on a compute unit together, 1), ``maxnreg`` (vector registers of a lane, accumulation ones included).
    A kernel that prints or asserts leaves its texts in the function's option ``prints``, one that explains hangs its table in ``hang``.
    Raises `CompilationError` for what the target cannot do.
    """
    options = options or {}
    function = module.function
    machine, builder = lower_function(module, target, facts, options)
    waves = total_waves(function)
    limits = _registers(waves, int(options.get("occupancy") or 1), int(options.get("maxnreg") or 0))
    found = finish(machine, target, waves=waves, limits=limits)
    if options.get("check", True):
        for item in found.flat.body:
            if isinstance(item, Inst):
                check(item, target, flat=True)
    described = _facts(function, builder, target)
    described.vgprs, described.agprs, described.sgprs = found.vgprs, found.agprs, found.sgprs
    described.scratch_bytes = found.scratch_bytes
    described.spilled_words = found.spilled_scalars
    return AmdgcnModule(target.name, found.flat, described)


def total_waves(function: IrFunction) -> int:
    """The waves of a workgroup, those of all tasks."""
    return int(function.options.get("total_warps") or function.num_warps)


def _registers(waves: int, occupancy: int, most: int) -> Budget:
    """The registers that a wave may use: what workgroups leave each other, and `most` vector registers (0: no limit of its own)."""
    found = budget(waves, occupancy)
    if not most:
        return found
    return Budget(found.s, min(found.v, most), max(0, min(found.a, most - found.v)))


def emit_text(module: Module, target: Target, facts: FactsLike, options: dict[str, Any] | None = None) -> str:
    """As `emit`, printed."""
    return print_module(emit(module, target, facts, options))


def lower_function(
    module: Module, target: Target, facts: FactsLike, options: dict[str, Any]
) -> tuple[Function, AmdgcnBuilder]:
    """The kernel as machine code on virtual registers, in SSA form, and the builder that knows its arguments."""
    function = module.function
    waves = total_waves(function)
    threads = waves * target.warp_size
    if threads > target.max_threads:
        what = f"num_warps={waves} is" if waves == function.num_warps else f"the tasks' {waves} warps are"
        raise CompilationError(
            "launch-size", f"{what} {threads} threads; {target.name} has {target.max_threads}", function.loc
        )
    builder = AmdgcnBuilder(target)
    builder.workgroup_ids = _axes(function)
    _place_arguments(function, builder)
    ctx = Lowering(function, target, facts, builder)
    machine = Function(str(options.get("entry") or function.name), [])
    builder.loc = function.loc
    for i, value in enumerate(function.block.args):
        _, dtype, offset = builder.params[i]
        builder.hint = function.arguments[i].name
        if isinstance(dtype, TensorDescType):
            ctx.set(value, argument_fields(builder, offset, dtype))
        else:
            ctx.set(value, [builder.argument(i)])
    explained = begin_watch(ctx)
    run_kernel(ctx)
    if explained is not None:
        function.options["hang"] = hang.table(explained, function)
    if tells(function):
        asserts = any(op.name == "debug.device_assert" for op in function.walk())
        function.options["prints"] = {"texts": list(builder.texts), "asserts": asserts}
    machine.blocks = ctx.blocks
    dead_code(machine, lambda inst: resolve(inst.opcode).removable)
    if options.get("check", True):
        for block in machine.blocks:
            for inst in block.insts:
                if isinstance(inst, Inst):
                    check(inst, target)
    return machine, builder


def _axes(function: IrFunction) -> str:
    """The workgroup ids that the kernel asks for; printing shows all."""
    if tells(function) or hang.wanted(function):
        return "xyz"
    used = {op.axis for op in function.walk() if op.name == "control.program_id"}  # type: ignore[attr-defined]
    return "".join(name for axis, name in enumerate("xyz") if axis in used or not axis)


def _place_arguments(function: IrFunction, builder: AmdgcnBuilder) -> None:
    """Offsets by the calling convention: every argument at the next multiple of its size, then hidden ones; the grid comes last."""
    at = 0
    for i, argument in enumerate(function.arguments):
        dtype = argument.type
        if not isinstance(dtype, (DType, PointerType, TensorDescType)):
            raise CompilationError(
                "unsupported", f"{builder.target.name} takes no {dtype} as an argument", argument.loc or function.loc
            )
        size = _size(dtype)
        align = MAP_ALIGN if isinstance(dtype, TensorDescType) else size
        at = -(-at // align) * align
        name = re.sub(r"[^A-Za-z0-9_]", "_", argument.name or f"argument{i}")
        builder.params.append((name, dtype, at))
        at += size
    for hidden in _hidden(function):
        at = -(-at // 8) * 8
        builder.hidden[hidden] = at
        at += 8 if hidden != TEXTS else 4
    builder.grid_offset = -(-at // 8) * 8


def tells(function: IrFunction) -> bool:
    """Whether the kernel prints, or says which assertion failed."""
    return any(op.name in ("debug.device_print", "debug.device_assert") for op in function.walk())


def _hidden(function: IrFunction) -> list[str]:
    """The arguments that the user does not give, in the order of the calling convention."""
    out = [hang.RECORDS, hang.STATE] if hang.wanted(function) else []
    return [*out, RECORDS, STATE, TEXTS] if tells(function) else out


def _size(dtype: Element | TensorDescType) -> int:
    if isinstance(dtype, TensorDescType):
        return MAP_BYTES
    return 1 if dtype is I1 else bits_of(dtype) // 8


def _facts(function: IrFunction, builder: AmdgcnBuilder, target: Target) -> KernelFacts:
    out = KernelFacts()
    out.lds_bytes = Words(function).end
    out.threads = total_waves(function) * target.warp_size
    out.workgroup_ids = builder.workgroup_ids
    end = 0
    for name, dtype, offset in builder.params:
        kind = "global_buffer" if isinstance(dtype, PointerType) else "by_value"
        out.args.append((name, offset, _size(dtype), kind))
        end = offset + _size(dtype)
    for name, offset in builder.hidden.items():
        size, kind = (4, "by_value") if name == TEXTS else (8, "global_buffer")
        out.args.append((name, offset, size, kind))
        end = offset + size
    if builder.uses_grid:
        out.args += [(kind, builder.grid_offset + 4 * i, 4, kind) for i, kind in enumerate(HIDDEN_GRID)]
        end = builder.grid_offset + 12
    out.kernarg_bytes = -(-end // 8) * 8
    return out


MAP_BYTES, MAP_ALIGN = 128, 64
"""A descriptor among the arguments, as the calling convention has it."""
LOWERINGS = (shared_lowerings, amdgcn_lowerings)
"""Imported so that the table of lowerings is full."""
