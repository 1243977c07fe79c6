"""The one file that calls every stage, in order: trace, passes, emit, print, assemble.

`compile_kernel` is the whole way and needs no device; `simulate` stops at tile IR and runs it on NumPy arrays. Timings of the stages go into
`CompiledKernel.metadata.extra["stages"]` (milliseconds).
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from mimw.codegen.ptx import assemble
from mimw.codegen.ptx.emit import emit
from mimw.codegen.ptx.printer import print_module
from mimw.diagnostics import CompilationError, InternalError
from mimw.frontend.trace import Signature, trace
from mimw.ir.core import Module
from mimw.ir.printer import print_module as print_ir
from mimw.ir.types import DType, PointerType
from mimw.passes import facts, pipeline
from mimw.runtime.convention import POINTER, KernelMetadata, Param, layout_params
from mimw.runtime.launch import CompiledKernel
from mimw.target import Target, get_target


class Options:
    """What a launch may ask of the compiler beside the arguments.

    `num_warps` warps a CTA, `num_stages` depth of pipelined loops, `maxnreg` registers a thread (0: the assembler decides), `enable_fp_fusion`
    contracts a*b+c into one rounding, `debug` keeps device_assert (None: as the environment variable MIMW_DEBUG says, else no).
    """

    __slots__ = ("debug", "enable_fp_fusion", "maxnreg", "num_stages", "num_warps")

    def __init__(
        self,
        num_warps: int = 4,
        num_stages: int = 3,
        maxnreg: int = 0,
        enable_fp_fusion: bool = True,
        debug: bool | None = None,
    ) -> None:
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.maxnreg = maxnreg
        self.enable_fp_fusion = enable_fp_fusion
        self.debug = os.environ.get("MIMW_DEBUG", "0") not in ("", "0") if debug is None else debug

    def key(self) -> tuple[Any, ...]:
        """Everything that changes the code."""
        return (self.num_warps, self.num_stages, self.maxnreg, self.enable_fp_fusion, self.debug)


class StageTimes:
    """Milliseconds a stage, in order of running."""

    __slots__ = ("times",)

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Time what runs inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.times[name] = self.times.get(name, 0.0) + (time.perf_counter() - start) * 1e3


@contextmanager
def quiet_collector() -> Generator[None]:
    """The cyclic collector off: a compile makes many objects and no garbage worth looking for (2.1 against 5.7 us an Inst, measured)."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def trace_kernel(fn: Callable[..., Any], signature: Signature, options: Options) -> Module:
    """Python function to tile IR, with the options that passes read."""
    module = trace(fn, signature, options.num_warps, options.num_stages)
    module.function.options["enable_fp_fusion"] = options.enable_fp_fusion
    module.function.options["debug"] = options.debug
    module.function.options["maxnreg"] = options.maxnreg
    return module


def simulated_kernel(fn: Callable[..., Any], signature: Signature, options: Options) -> Module:
    """Tile IR as the tile simulator executes it: traced, with products contracted as in compiled code (no target has a say in that)."""
    module = trace_kernel(fn, signature, options)
    pipeline.run(module, get_target("sm_90a"), passes=pipeline.SIMULATED)
    return module


def compile_kernel(
    fn: Callable[..., Any],
    signature: Signature,
    target: Target,
    options: Options,
    *,
    assembled: bool = True,
    keep_ir: bool = True,
) -> CompiledKernel:
    """The whole way from a Python function to a kernel for `target`. Without `assembled`, it ends with PTX."""
    times = StageTimes()
    with quiet_collector():
        with times.stage("trace"):
            module = trace_kernel(fn, signature, options)
        asm: dict[str, str | bytes] = {}
        if keep_ir:
            with times.stage("print tile"):
                asm["tile"] = print_ir(module)
        kernel = compile_module(module, target, asm, times, keep_ir=keep_ir)
    if assembled:
        with times.stage("assemble"):
            assemble_kernel(kernel)
    return kernel


def compile_module(
    module: Module, target: Target, asm: dict[str, str | bytes], times: StageTimes, *, keep_ir: bool = True
) -> CompiledKernel:
    """Tile IR to PTX. `asm` receives the stages' texts."""
    fn = module.function
    try:
        with times.stage("passes"):
            pipeline.run(module, target)
        with times.stage("facts"):
            known = facts.compute(fn)
        if keep_ir:
            with times.stage("print layouts"):
                asm["layouts"] = print_ir(module)
        entry = entry_name(fn.name)
        with times.stage("emit"):
            ptx = emit(module, target, known, {"entry": entry, "maxnreg": fn.options.get("maxnreg", 0)})
        with times.stage("print ptx"):
            asm["ptx"] = print_module(ptx)
    except (CompilationError, InternalError):
        raise
    except Exception as error:
        raise InternalError(f"{type(error).__name__}: {error}", fn.loc, _dump(module)) from error
    remarks = [{"kind": kind, "line": loc.line, "text": text} for kind, loc, text in module.remarks]
    meta = KernelMetadata(
        fn.name,
        entry,
        target.name,
        kernel_params(module),
        num_warps=fn.num_warps,
        shared_bytes=int(fn.options.get("shared_bytes", 0)),
        extra={"stages": times.times, "remarks": remarks},
    )
    return CompiledKernel(asm, meta)


def entry_name(name: str) -> str:
    """The symbol of a kernel in the text: chosen apart from the Python name, since ptxas treats some names specially."""
    return "mimw_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)


def kernel_params(module: Module) -> list[Param]:
    """The calling convention's parameters of a traced kernel."""
    params: list[Param] = []
    for a in module.function.arguments:
        if isinstance(a.type, PointerType):
            params.append(Param(a.name, POINTER, 0, dtype=a.type.pointee.name, divisor=a.divisor))
        elif isinstance(a.type, DType):
            params.append(Param(a.name, a.type.name, 0, divisor=a.divisor))
        else:
            raise InternalError(f"argument {a.name} has type {a.type}", a.loc)
    layout_params(params)
    return params


def assemble_kernel(kernel: CompiledKernel) -> None:
    """PTX to cubin where a `ptxas` is at hand (else the driver assembles at load); fills registers, spills, warnings."""
    ptxas = assemble.find_ptxas()
    if ptxas is None:
        return
    ptx = kernel.asm["ptx"]
    assert isinstance(ptx, str)
    done = assemble.assemble(ptx, kernel.metadata.target)
    kernel.asm["cubin"] = done.cubin
    kernel.metadata.registers = done.registers
    kernel.metadata.spill_bytes = done.spill_stores + done.spill_loads
    kernel.metadata.warnings = [str(w) for w in done.warnings]


def _dump(module: Module) -> str | None:
    """Write the IR of a compile that failed through our own fault; the file's name."""
    try:
        text = print_ir(module)
        with tempfile.NamedTemporaryFile("w", prefix="mimw-", suffix=".mir", delete=False) as f:
            f.write(text)
    except Exception:
        return None
    return os.path.abspath(f.name)
