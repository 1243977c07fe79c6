"""`mimw inspect`: one kernel at one stage, with source lines, in colour on a terminal.

Reads a Python file as a module of its own (top-level code runs), finds the kernel, compiles it for the target, prints the stage.
"""

from __future__ import annotations

import ast
import importlib.util
import linecache
import os
import sys
import traceback
from typing import Any

from rich.console import Console
from rich.text import Text

from mimw.codegen.ptx.assemble import disassemble
from mimw.compiler import Options, compile_kernel
from mimw.diagnostics import UNKNOWN, CompilationError, LaunchError, Loc
from mimw.frontend.trace import Signature
from mimw.jit import Kernel
from mimw.runtime.launch import CompiledKernel
from mimw.signature import parse_signature
from mimw.target import get_target

NVIDIA_PACKAGES = "nvidia-cuda-nvcc nvidia-cuda-nvdisasm"
"""Where PyPI has ptxas and nvdisasm."""

_COLOURS = (
    (r"(//|  ;).*$", "green"),
    (r"[%$][A-Za-z_][\w$.]*", "cyan"),
    (r"\b(tensor|memdesc|ptr|layout)<", "magenta"),
    (r"^\s*(@!?%?\w+\s+)?[a-z_0-9]+\.[a-z_0-9.:]+", "bold"),
    (r"#\w+", "yellow"),
)


def inspect(
    where: str, signature: str, target: str, stage: str, *, num_warps: int, num_stages: int, color: str = "auto"
) -> int:
    """Print the stage to stdout; the remarks of the compiler after it."""
    kernel = find_kernel(where)
    machine = _target(target)
    spec = _signature(kernel, signature)
    options = Options(num_warps=num_warps, num_stages=num_stages)
    stage = stage or ("amdgcn" if machine.vendor == "amd" else "ptx")
    compiled = compile_kernel(kernel.fn, spec, machine, options, assembled=stage == "sass")
    console = Console(force_terminal={"always": True, "never": False}.get(color), soft_wrap=True, highlight=False)
    console.print(coloured(stage_text(compiled, stage)))
    for remark in compiled.metadata.extra["remarks"]:
        line = linecache.getline(kernel.fn.__code__.co_filename, remark["line"]).strip()
        console.print(
            Text(
                f"// {remark['kind']}: line {remark['line']}: {remark['text']}" + (f"    {line}" if line else ""),
                "green",
            )
        )
    return 0


def stage_text(compiled: CompiledKernel, stage: str) -> str:
    """The stage's text; SASS is disassembled now, `CompilationError` says what is missing for it."""
    if stage != "sass":
        text = compiled.asm.get(stage)
        if text is None:
            raise CompilationError(
                "no-stage",
                f"code for {compiled.metadata.target} has no stage {stage}; it has {', '.join(compiled.asm)}",
                UNKNOWN,
            )
        assert isinstance(text, str)
        return text
    cubin = compiled.asm.get("cubin")
    text = disassemble(cubin) if isinstance(cubin, bytes) else None
    if text is None:
        raise CompilationError(
            "no-disassembler", "SASS needs ptxas and nvdisasm (or cuobjdump)", hint=f"pip install {NVIDIA_PACKAGES}"
        )
    return text


def coloured(text: str) -> Text:
    """A stage's text with names, types and comments in colour."""
    out = Text(text)
    for pattern, style in _COLOURS:
        out.highlight_regex(f"(?m){pattern}", style)
    return out


def _signature(kernel: Kernel, text: str) -> Signature:
    """The signature of the command line; what is wrong with it is wrong there, in no file."""
    types, constants = split_signature(kernel, text)
    try:
        return parse_signature(kernel, types, constants)
    except LaunchError as error:
        error.loc = UNKNOWN
        error.hint = error.hint or f"write --signature with an entry for each of {', '.join(kernel.parameter_names)}"
        raise


def find_kernel(where: str) -> Kernel:
    """The kernel that ``FILE:KERNEL`` names; `CompilationError` says which kernels the file has."""
    path, _, name = where.rpartition(":")
    if where.endswith(".py"):
        path, name = where, ""
    if not path or not os.path.exists(path):
        raise CompilationError(
            "inspect-file",
            f"there is no file {path or where!r}",
            hint="write FILE:KERNEL, as in examples/01_vector_add.py:add",
        )
    module = _load(path)
    names: dict[str, Any] = dict(module.__dict__)
    kernels = {k: v for k, v in names.items() if isinstance(v, Kernel)}
    if name not in kernels:
        raise CompilationError(
            "inspect-kernel",
            f"{path} has no kernel {name!r}" if name else f"which kernel of {path}?",
            Loc(path, 1),
            hint=f"write FILE:KERNEL; its kernels are {', '.join(kernels) or 'none'}",
        )
    return kernels[name]


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("mimw_inspected", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        spec.loader.exec_module(module)
    except CompilationError:
        raise
    except Exception as error:
        raise CompilationError(
            "inspect-file", f"{path} fails: {type(error).__name__}: {error}", _place(error)
        ) from None
    finally:
        sys.path.pop(0)
    return module


def _place(error: Exception) -> Loc | None:
    """Where a program failed: the line that does not parse, or the innermost one that ran."""
    if isinstance(error, SyntaxError):
        return Loc(error.filename or "", error.lineno or 1)
    frames = traceback.extract_tb(error.__traceback__)
    return Loc(frames[-1].filename, frames[-1].lineno or 1) if frames else None


def split_signature(kernel: Kernel, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """``"x=*f32:16,n=i32,BLOCK=128"`` as (types, constants). Without names the entries are taken in the order of the parameters."""
    names = kernel.parameter_names
    types: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for i, item in enumerate(part.strip() for part in _split(text)):
        name, equals, value = item.partition("=")
        if not equals or name not in names:
            if i >= len(names):
                raise CompilationError("inspect-signature", f"{kernel.name} has only {len(names)} parameters")
            name, value = names[i], item.removeprefix("=")
        index = names.index(name)
        literal = _literal(value)
        if kernel.constexpr_flags[index] or not isinstance(literal, str):
            constants[name] = literal
        else:
            types[name] = literal
    return types, constants


def _split(text: str) -> list[str]:
    """Split at commas outside of parentheses."""
    out: list[str] = []
    depth = start = 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            out.append(text[start:i])
            start = i + 1
    return [part for part in [*out, text[start:]] if part.strip()]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _target(name: str) -> Any:
    try:
        return get_target(name)
    except ValueError as error:
        raise CompilationError("inspect-target", str(error)) from None
