"""Tile IR with layouts to a PTX module: the entry of the PTX code generator.

Owns the frame of a kernel (parameters, directives, shared memory, entry name) and the order: lower, drop dead code, leave SSA. Assumes
that passes have given every tensor a layout and every buffer an offset. Knows no op.
"""

from __future__ import annotations

import re
from typing import Any

from mimw.codegen.leave_ssa import leave_ssa
from mimw.codegen.lowering import FactsLike, Lowering
from mimw.codegen.machine import FlatFunction, Function, Imm, dead_code
from mimw.codegen.ptx.builder import PRINT_BUFFER, PtxBuilder
from mimw.codegen.ptx.isa import check, resolve
from mimw.codegen.ptx.lower import all_lowerings as ptx_lowerings
from mimw.codegen.ptx.lower import frame, hang, task, tensor_map
from mimw.codegen.ptx.module import Extern, PtxModule, Variable
from mimw.codegen.ptx.opcodes import register_class
from mimw.codegen.ptx.printer import print_module
from mimw.codegen.shared import all_lowerings as shared_lowerings
from mimw.codegen.shared.hang import table as hang_table
from mimw.diagnostics import CompilationError
from mimw.ir.core import Module
from mimw.ir.types import I1, DType, PointerType, TensorDescType
from mimw.target import Target

__all__ = ["emit", "emit_text"]


def emit(module: Module, target: Target, facts: FactsLike, options: dict[str, Any] | None = None) -> PtxModule:
    """The PTX of a module's kernel.

    `options`: ``entry`` (the entry's name; the kernel's by default), ``maxnreg``, ``check`` (every instruction against the table;
    on by default). A build that explains hangs leaves its table in the function's option ``hang``. Raises `CompilationError` for what the target cannot do.
    """
    options = options or {}
    function = module.function
    warps = int(function.options.get("total_warps") or function.num_warps)
    threads = warps * target.warp_size
    if threads > target.max_threads:
        what = f"num_warps={warps} is" if warps == function.num_warps else f"the tasks' {warps} warps are"
        raise CompilationError(
            "launch-size", f"{what} {threads} threads; {target.name} has {target.max_threads}", function.loc
        )
    builder = PtxBuilder(target)
    ctx = Lowering(function, target, facts, builder)
    entry = str(options.get("entry") or function.name)
    explained = hang.begin(ctx)
    machine = Function(entry, _parameters(builder, function.arguments) + hang.parameters(explained))
    builder.loc = function.loc
    for i, value in enumerate(function.block.args):
        ctx.set(value, [builder.argument(i)])
    frame.run_kernel(ctx, int(options.get("maxnreg") or 0))
    if explained is not None:
        function.options["hang"] = hang_table(explained, function)
    machine.blocks = ctx.blocks
    dead_code(machine, lambda inst: resolve(inst.opcode).removable)
    flat = leave_ssa(machine)
    if options.get("check", True):
        for item in flat.body:
            if hasattr(item, "opcode"):
                check(item, target)  # type: ignore[arg-type]
    for argument, (name, dtype) in zip(function.arguments, builder.params, strict=True):
        if isinstance(dtype, PointerType):
            flat.pointers[name] = ("global", min(16, argument.divisor & -argument.divisor) or 16)
    flat.directives["reqntid"] = (threads, 1, 1)
    if options.get("maxnreg"):
        flat.directives["maxnreg"] = (int(options["maxnreg"]),)
    else:
        flat.directives["minnctapersm"] = (1,)
    cluster = task.cluster_of(function)
    if cluster != (1, 1, 1):
        flat.directives["explicitcluster"] = ()
        flat.directives["reqnctapercluster"] = cluster
    out = PtxModule(target.name)
    out.variables.append(Variable("shared", "smem", "b8", 0, 1024, "extern"))
    out.variables += tensor_map.variables(function)
    _add_printing(out, builder, flat)
    out.entries.append(flat)
    return out


def emit_text(module: Module, target: Target, facts: FactsLike, options: dict[str, Any] | None = None) -> str:
    """As `emit`, printed."""
    return print_module(emit(module, target, facts, options))


def _add_printing(out: PtxModule, builder: PtxBuilder, flat: FlatFunction) -> None:
    """What calls of vprintf need: its declaration, the format strings, the buffer of arguments."""
    if not builder.formats:
        return
    wide = [("b64", "format", 8, 8), ("b64", "values", 8, 8)]
    out.externs.append(Extern("vprintf", [("b32", "count", 4, 4)], wide))
    for text, name in builder.formats.items():
        data = [Imm(byte) for byte in (*text.encode(), 0)]
        out.variables.append(Variable("global", name, "b8", len(data), 1, "", [*data]))
    flat.local.append((PRINT_BUFFER, 8, builder.print_bytes))


def _parameters(builder: PtxBuilder, arguments: list[Any]) -> list[tuple[str, str, int, int]]:
    out: list[tuple[str, str, int, int]] = []
    taken: set[str] = set()
    for i, argument in enumerate(arguments):
        name = "p_" + re.sub(r"[^A-Za-z0-9_]", "_", argument.name or str(i))
        while name in taken:
            name += "_"
        taken.add(name)
        dtype = argument.type
        builder.params.append((name, dtype))
        if isinstance(dtype, TensorDescType):
            out.append(("b8", name, 128, 64))
        elif isinstance(dtype, PointerType):
            out.append(("u64", name, 8, 8))
        else:
            out.append((_parameter_type(dtype), name, dtype.itemsize, dtype.itemsize))
    return out


def _parameter_type(dtype: DType) -> str:
    if dtype is I1 or dtype.bits == 8:
        return "s8" if dtype.kind == "int" else "u8"
    cls = register_class(dtype)
    if dtype.kind == "int":
        return f"s{dtype.bits}"
    return f"u{dtype.bits}" if dtype.kind == "uint" else cls


LOWERINGS = (shared_lowerings, ptx_lowerings)
"""Imported so that the table of lowerings is full."""
