"""The text of a kernel to the bytes of a code object: assembled by LLVM, wrapped with the descriptor that its facts ask for."""

from __future__ import annotations

from mimw.codegen.amdgcn.binary.assemble import Places, assemble
from mimw.codegen.amdgcn.binary.code_object import KernelArg, KernelCode, write
from mimw.codegen.amdgcn.binary.kernel_descriptor import KernelDescriptor
from mimw.codegen.amdgcn.module import AmdgcnModule, KernelFacts
from mimw.codegen.amdgcn.printer import print_with_places


def build(module: AmdgcnModule) -> tuple[str, bytes]:
    """(text, code object). `AssemblerError` with the user's line when LLVM refuses the text."""
    text, places = print_with_places(module)
    return text, build_text(text, module.target, module.function.name, module.facts, places)


def build_text(text: str, target: str, name: str, facts: KernelFacts, places: Places | None = None) -> bytes:
    """The code object of a printed module whose kernel is `name`; `places` as `assemble` takes them."""
    done = assemble(text, target, places)
    offset, size = done.symbols[name]
    args = [KernelArg(*arg) for arg in facts.args]
    kernel = KernelCode(name, offset, size, descriptor(facts), args, facts.threads)
    return write(target, done.code, [kernel])


def descriptor(facts: KernelFacts) -> KernelDescriptor:
    """The kernel descriptor. IEEE mode is off: there, min and max of a signalling NaN would be NaN, and not the other operand."""
    found = KernelDescriptor(
        lds_bytes=facts.lds_bytes,
        scratch_bytes=facts.scratch_bytes,
        kernarg_bytes=facts.kernarg_bytes,
        vgprs=facts.vgprs,
        agprs=facts.agprs,
        sgprs=facts.sgprs,
        workgroup_ids=facts.workgroup_ids,
    )
    found.ieee_mode = False
    return found
