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

from mimw.codegen.amdgcn.binary.build import build_text
from mimw.codegen.amdgcn.builder import printing
from mimw.codegen.amdgcn.emit import emit as emit_amdgcn
from mimw.codegen.amdgcn.module import KernelFacts
from mimw.codegen.amdgcn.printer import print_with_places
from mimw.codegen.ptx import assemble
from mimw.codegen.ptx.emit import emit
from mimw.codegen.ptx.printer import print_module
from mimw.codegen.shared import hang
from mimw.diagnostics import CompilationError, InternalError, LaunchError, Loc, MimwWarning
from mimw.frontend.trace import Signature, trace
from mimw.ir.core import Module
from mimw.ir.printer import print_module as print_ir
from mimw.ir.tma import box_plan
from mimw.ir.types import DType, PointerType, TensorDescType
from mimw.passes import facts, pipeline
from mimw.runtime.convention import (
    POINTER,
    TENSOR_MAP,
    KernelMetadata,
    LaunchAttributes,
    Param,
    descriptor_record,
    layout_params,
)
from mimw.runtime.hang import parse_timeout
from mimw.runtime.launch import CompiledKernel
from mimw.runtime.launch_errors import caller_loc
from mimw.target import Target, get_target


class Options:
    """What a launch may ask of the compiler beside the arguments.

    `num_warps` warps a CTA, `num_stages` depth of pipelined loops, `maxnreg` registers a thread (0: the assembler decides), `enable_fp_fusion`
    contracts a*b+c into one rounding, `debug` keeps device_assert (None: as the environment variable MIMW_DEBUG says, else no),
    `ctas_per_cga` CTAs of a cluster along x, y, z (the grid counts CTAs), `hang_timeout` the time after which a wait gives up and tells so
    (``"2s"``; None: as the environment variable MIMW_HANG_TIMEOUT says, else 10 seconds with `debug` and none without), kept in nanoseconds.
    """

    __slots__ = ("ctas_per_cga", "debug", "enable_fp_fusion", "hang_timeout", "maxnreg", "num_stages", "num_warps")

    def __init__(
        self,
        num_warps: int = 4,
        num_stages: int = 3,
        maxnreg: int = 0,
        enable_fp_fusion: bool = True,
        debug: bool | None = None,
        ctas_per_cga: tuple[int, int, int] = (1, 1, 1),
        hang_timeout: str | float | None = None,
    ) -> None:
        self.num_warps = num_warps
        self.num_stages = num_stages or 1  # 0: not pipelined, as TLX's kernels say it
        self.maxnreg = maxnreg
        self.enable_fp_fusion = enable_fp_fusion
        self.debug = os.environ.get("MIMW_DEBUG", "0") not in ("", "0") if debug is None else debug
        self.ctas_per_cga = ctas_per_cga
        self.hang_timeout = _hang_timeout(hang_timeout, self.debug)

    def key(self) -> tuple[Any, ...]:
        """Everything that changes the code."""
        common = (self.num_warps, self.num_stages, self.maxnreg, self.enable_fp_fusion, self.debug, self.ctas_per_cga)
        return (*common, self.hang_timeout) if self.hang_timeout else common


def _hang_timeout(given: str | float | None, debug: bool) -> int:
    """Nanoseconds after which waits give up, 0 for never."""
    source = "hang_timeout"
    if given is None:
        source, given = "MIMW_HANG_TIMEOUT", os.environ.get("MIMW_HANG_TIMEOUT") or ("10s" if debug else "0")
    try:
        return parse_timeout(given)
    except ValueError as error:
        raise LaunchError("launch-option", f"{source}: {error}", caller_loc()) from None


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
    if options.hang_timeout:
        module.function.options["hang_timeout"] = options.hang_timeout
    if options.ctas_per_cga != (1, 1, 1):
        module.function.options["ctas_per_cga"] = options.ctas_per_cga
    return module


def simulated_kernel(fn: Callable[..., Any], signature: Signature, options: Options) -> Module:
    """Tile IR as the tile simulator executes it: traced, with products contracted as in compiled code (no target has a say in that)."""
    module = trace_kernel(fn, signature, options)
    pipeline.run(module, get_target("sm_90a"), passes=pipeline.SIMULATED)
    return module


def check_protocol(fn: Callable[..., Any], signature: Signature, options: Options) -> None:
    """What a compile says of tasks and barriers, without the rest of it: `CompilationError` where they cannot work."""
    pipeline.run(trace_kernel(fn, signature, options), get_target("sm_90a"), passes=pipeline.PROTOCOL)


def compile_kernel(
    fn: Callable[..., Any],
    signature: Signature,
    target: Target,
    options: Options,
    *,
    assembled: bool = True,
    keep_ir: bool = True,
) -> CompiledKernel:
    """The whole way from a Python function to a kernel for `target`. Without `assembled`, it ends with text."""
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
    """Tile IR to the target's text. `asm` receives the stages' texts."""
    fn = module.function
    check_cluster_support(module, target)
    try:
        with times.stage("passes"):
            pipeline.run(module, target)
        with times.stage("facts"):
            known = facts.compute(fn)
        if keep_ir:
            with times.stage("print layouts"):
                asm["layouts"] = print_ir(module)
        entry = entry_name(fn.name)
        emit_target = _emit_amdgcn if target.vendor == "amd" else _emit_ptx
        extra = emit_target(module, target, known, entry, asm, times)
    except (CompilationError, InternalError, MimwWarning):  # a warning, where the user makes errors of them
        raise
    except Exception as error:
        raise InternalError(f"{type(error).__name__}: {error}", fn.loc, _dump(module)) from error
    params, descriptors = kernel_params(module, boxes=target.has("tma"))
    remarks = [{"kind": kind, "line": loc.line, "text": text} for kind, loc, text in module.remarks]
    meta = KernelMetadata(
        fn.name,
        entry,
        target.name,
        params,
        num_warps=int(fn.options.get("total_warps") or fn.num_warps),
        shared_bytes=int(fn.options.get("shared_bytes", 0)),
        attributes=launch_attributes(module),
        extra={"stages": times.times, "remarks": remarks, "descriptors": descriptors, **extra},
    )
    if "hang" in fn.options:
        meta.extra["hang"] = fn.options["hang"]
    if "prints" in fn.options:
        meta.extra["prints"] = fn.options["prints"]
    return CompiledKernel(asm, meta)


def _emit_ptx(
    module: Module, target: Target, known: facts.Facts, entry: str, asm: dict[str, str | bytes], times: StageTimes
) -> dict[str, Any]:
    """The text for NVIDIA; nothing more for the metadata."""
    with times.stage("emit"):
        ptx = emit(module, target, known, {"entry": entry, "maxnreg": module.function.options.get("maxnreg", 0)})
    with times.stage("print ptx"):
        asm["ptx"] = print_module(ptx)
    return {}


def _emit_amdgcn(
    module: Module, target: Target, known: facts.Facts, entry: str, asm: dict[str, str | bytes], times: StageTimes
) -> dict[str, Any]:
    """The text for AMD; for the metadata the facts of the kernel's descriptor and, until it is assembled, where its lines come from."""
    with times.stage("emit"):
        options = {"entry": entry, "maxnreg": module.function.options.get("maxnreg", 0)}
        code = emit_amdgcn(module, target, known, options)
    found = code.facts
    if found.scratch_bytes:
        size = f"{found.scratch_bytes} bytes a lane"
        text = f"{size}: {found.vgprs} vector and {found.agprs} accumulation registers are not enough; take smaller tiles or more warps"
        module.remarks.append(("spilled to memory", module.function.loc, text))
    with times.stage("print amdgcn"):
        asm["amdgcn"], places = print_with_places(code)
    lines = [
        (i, p.file, p.line, p.col, p.end_col) for i, p in enumerate(places) if p is not None and p is not places[i - 1]
    ]
    return {"amdgcn": code.facts.to_dict(), "amdgcn_lines": lines}


def check_cluster_support(module: Module, target: Target) -> None:
    """`CompilationError` when a kernel is to run in clusters on a target that has none."""
    cluster = module.function.options.get("ctas_per_cga", (1, 1, 1))
    if cluster != (1, 1, 1) and not target.has("cluster"):
        raise CompilationError(
            "unsupported",
            f"{target.name} has no clusters; ctas_per_cga is {cluster}",
            module.function.loc,
            hint="launch without ctas_per_cga: every CTA then is a cluster of its own, of rank 0 and size 1",
        )


def launch_attributes(module: Module) -> LaunchAttributes:
    """What launches of a kernel ask beside the grid; the text states the size of clusters itself."""
    cluster = module.function.options.get("ctas_per_cga", (1, 1, 1))
    return LaunchAttributes(cluster, stated=cluster != (1, 1, 1))


def entry_name(name: str) -> str:
    """The symbol of a kernel in the text: chosen apart from the Python name, since ptxas treats some names specially."""
    return "mimw_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)


def kernel_params(module: Module, boxes: bool = True) -> tuple[list[Param], list[dict[str, Any]]]:
    """The calling convention's parameters of a kernel after all passes, and the records of those that are tensor maps. Without
    `boxes`, the target has no engine that would cut blocks: descriptors are records (`TensorDescriptor`)."""
    function = module.function
    params: list[Param] = []
    descriptors: list[dict[str, Any]] = []
    for a, value in zip(function.arguments, function.block.args, strict=True):
        if isinstance(a.type, PointerType):
            params.append(Param(a.name, POINTER, 0, dtype=a.type.pointee.name, divisor=a.divisor))
        elif isinstance(a.type, DType):
            params.append(Param(a.name, a.type.name, 0, divisor=a.divisor, below=a.below))
        elif isinstance(value.type, TensorDescType):
            params.append(Param(a.name, TENSOR_MAP, 0, dtype=value.type.dtype.name))
            descriptors.append(_descriptor(a.name, value.type, a.loc or function.loc, boxes))
        else:
            raise InternalError(f"argument {a.name} has type {a.type}", a.loc)
    if "hang" in function.options:
        params += [Param(name, POINTER, 0, hidden=True) for name in (hang.RECORDS, hang.STATE)]
    if "prints" in function.options:
        params += [Param(name, POINTER, 0, hidden=True) for name in (printing.RECORDS, printing.STATE)]
        params.append(Param(printing.TEXTS, "i32", 0, hidden=True))
    layout_params(params)
    return params, descriptors


def _descriptor(name: str, t: TensorDescType, loc: Loc, boxes: bool) -> dict[str, Any]:
    """How the code cuts the blocks of one descriptor argument."""
    if not boxes:
        return descriptor_record(name, t.dtype.name, t.block_shape, (), 0)
    try:
        plan = box_plan(t.layout, t.block_shape, t.dtype.itemsize)
    except ValueError as error:
        raise CompilationError(
            "tensor-descriptor", f"the descriptor {name} cannot be copied by TMA: {error}", loc
        ) from None
    return descriptor_record(name, t.dtype.name, t.block_shape, plan.box[::-1], plan.swizzle)


def assemble_kernel(kernel: CompiledKernel) -> None:
    """PTX to cubin where a `ptxas` is at hand (else the driver assembles at load), AMDGCN to a code object; fills registers, spills,
    warnings."""
    if "amdgcn" in kernel.asm:
        _assemble_amdgcn(kernel)
        return
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


def _assemble_amdgcn(kernel: CompiledKernel) -> None:
    """AMDGCN to a code object by LLVM, whose complaints are told at the user's lines."""
    meta, text = kernel.metadata, kernel.asm["amdgcn"]
    assert isinstance(text, str)
    found = KernelFacts.from_dict(meta.extra["amdgcn"])
    places: list[Loc | None] = [None] * (text.count("\n") + 1)
    for i, *place in meta.extra.pop("amdgcn_lines", ()):
        places[i] = Loc(*place)
    kernel.asm["hsaco"] = build_text(text, meta.target, meta.entry, found, places)
    meta.registers = found.vgprs + found.agprs
    meta.spill_bytes = found.scratch_bytes


def _dump(module: Module) -> str | None:
    """Write the IR of a compile that failed through our own fault; the file's name."""
    try:
        text = print_ir(module)
        with tempfile.NamedTemporaryFile("w", prefix="mimw-", suffix=".mir", delete=False) as f:
            f.write(text)
    except Exception:
        return None
    return os.path.abspath(f.name)
