"""A program from a code object: what the disassembler says of its machine code, so that encodings are run too.

Assumes `codegen.amdgcn`'s reader of code objects and its LLVM disassembler. Knows no instruction's meaning.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.binary.code_object import Kernel, read
from mimw.codegen.amdgcn.binary.llvm import disassemble_bytes
from mimw.sim.amdgcn.decode import Inst
from mimw.sim.amdgcn.program import USER_REGISTERS, KernelArg, KernelInfo, Program


def from_code_object(data: bytes) -> Program:
    """Disassemble the code and read the kernel descriptors. Bytes that are no instruction stand as `.unknown`."""
    code = read(data)
    program = Program(code.target)
    for address, text, size in disassemble_bytes(code.text, code.target, code.text_address):
        program.by_address[address] = len(program.insts)
        program.insts.append(Inst(text or ".unknown", address, size))
    for kernel in code.kernels.values():
        if kernel.entry in program.by_address:
            program.kernels[kernel.name] = _info(kernel, program.by_address[kernel.entry])
    return program


def _info(kernel: Kernel, entry: int) -> KernelInfo:
    desc = kernel.descriptor
    info = KernelInfo(kernel.name, entry)
    info.lds, info.scratch, info.kernarg_size = desc.lds_bytes, desc.scratch_bytes, desc.kernarg_bytes
    info.user_layout = [item for bit, item in enumerate(USER_REGISTERS) if desc.properties >> bit & 1]
    info.user_sgprs, info.preload = desc.user_sgprs, desc.preload[0]
    x, y, z = (axis in desc.workgroup_ids for axis in "xyz")
    info.workgroup_ids = (x, y, z)
    info.workgroup_info, info.workitem_dims = desc.workgroup_info, desc.workitem_dims
    info.float_mode = desc.round_32 | desc.round_16_64 << 2 | desc.denorm_32 << 4 | desc.denorm_16_64 << 6
    info.dx10_clamp, info.ieee = desc.dx10_clamp, desc.ieee_mode
    info.granted = {"v": desc.vgprs, "a": desc.agprs, "s": desc.sgprs}
    info.args = [KernelArg(a.offset, a.size, a.kind) for a in kernel.args]
    return info
