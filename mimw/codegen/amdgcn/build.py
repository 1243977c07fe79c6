"""An `AmdgcnModule` to the bytes of a code object: printed, assembled by LLVM, wrapped with the descriptor that its facts ask for."""

from __future__ import annotations

from mimw.codegen.amdgcn.assemble import assemble
from mimw.codegen.amdgcn.code_object import KernelArg, KernelCode, write
from mimw.codegen.amdgcn.kernel_descriptor import KernelDescriptor
from mimw.codegen.amdgcn.module import AmdgcnModule, KernelFacts
from mimw.codegen.amdgcn.printer import print_with_places


def build(module: AmdgcnModule) -> tuple[str, bytes]:
    """(text, code object). `AssemblerError` with the user's line when LLVM refuses the text."""
    text, places = print_with_places(module)
    done = assemble(text, module.target, places)
    name = module.function.name
    offset, size = done.symbols[name]
    args = [KernelArg(*arg) for arg in module.facts.args]
    kernel = KernelCode(name, offset, size, descriptor(module.facts), args, module.facts.threads)
    return text, write(module.target, done.code, [kernel])


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
