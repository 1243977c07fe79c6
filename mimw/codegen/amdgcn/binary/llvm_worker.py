# pyright: basic
"""The helper process that holds LLVM: `python llvm_worker.py LIBRARY`. It reads requests from stdin and answers on stdout.

Owns: the bindings to LLVM's C interface (ctypes), the message format. Assumes: a shared LLVM that has the AMDGPU target
with its assembly parser and its disassembler. Runs on its own, from the standard library alone, so that it starts in
milliseconds; must not know mimw. LLVM ends the process on some bad input: that is why it lives here.

A message is a number of fields: u32 count, then for each field its u32 length and its bytes, little-endian.

    assemble, CPU, features, text             -> ok, object file, warning...   | refused, error...
    disassemble, CPU, features, address, code -> ok, one line an instruction: address, size in bytes, text
    version                                   -> ok, "22.0.0"

Texts of errors are LLVM's: ``<inline asm>:4:1: invalid instruction`` and the line of the text below it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
from collections.abc import Sequence
from typing import IO, Any

TRIPLE = b"amdgcn-amd-amdhsa"
_PARTS = ("TargetInfo", "Target", "TargetMC", "AsmParser", "AsmPrinter", "Disassembler")
_pointer = ctypes.c_void_p
_ON_DIAGNOSTIC = ctypes.CFUNCTYPE(None, _pointer, _pointer)
# LLVM's enumerations: DS_ERROR, DS_WARNING; ObjectFile; CodeGenLevelNone (its passes have no functions to work on), RelocPIC.
_ERROR, _WARNING, _OBJECT_FILE, _NO_OPTIMISATION, _PIC = 0, 1, 1, 0, 2

# Function -> (result, arguments): s string, p pointer, i int, u unsigned, z size, q 64 bits, - nothing.
_FUNCTIONS = {
    "LLVMContextCreate": "p",
    "LLVMContextDispose": "-p",
    "LLVMContextSetDiagnosticHandler": "-pdp",
    "LLVMGetDiagInfoDescription": "pp",
    "LLVMGetDiagInfoSeverity": "ip",
    "LLVMDisposeMessage": "-p",
    "LLVMModuleCreateWithNameInContext": "psp",
    "LLVMDisposeModule": "-p",
    "LLVMSetTarget": "-ps",
    "LLVMSetModuleDataLayout": "-pp",
    "LLVMSetModuleInlineAsm2": "-psz",
    "LLVMGetTargetFromTriple": "ispp",
    "LLVMCreateTargetMachine": "ppsssiii",
    "LLVMDisposeTargetMachine": "-p",
    "LLVMCreateTargetDataLayout": "pp",
    "LLVMDisposeTargetData": "-p",
    "LLVMTargetMachineEmitToMemoryBuffer": "ippipp",
    "LLVMGetBufferStart": "pp",
    "LLVMGetBufferSize": "zp",
    "LLVMDisposeMemoryBuffer": "-p",
    "LLVMCreateDisasmCPUFeatures": "pssspipp",
    "LLVMDisasmInstruction": "zppqqpz",
    "LLVMDisasmDispose": "-p",
    "LLVMGetVersion": "-ppp",
}
_TYPES: dict[str, Any] = {
    "-": None,
    "s": ctypes.c_char_p,
    "p": _pointer,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "z": ctypes.c_size_t,
    "q": ctypes.c_uint64,
    "d": _ON_DIAGNOSTIC,
}


class Refused(Exception):
    """LLVM found errors in a text; the arguments are its messages."""


class Llvm:
    """One loaded LLVM. `OSError` when the library cannot be loaded, `AttributeError` when it lacks a function."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        for part in _PARTS:
            getattr(library, f"LLVMInitializeAMDGPU{part}")()
        for name, types in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, *function.argtypes = [_TYPES[t] for t in types]
        self._library = library

    def version(self) -> str:
        """LLVM's version, ``22.0.0``."""
        parts = [ctypes.c_uint() for _ in range(3)]
        self._library.LLVMGetVersion(*(ctypes.byref(p) for p in parts))
        return ".".join(str(p.value) for p in parts)

    def assemble(self, text: bytes, cpu: bytes, features: bytes) -> tuple[bytes, list[bytes]]:
        """(relocatable ELF object, warnings) of a text: it is the inline assembly of a module that holds nothing else."""
        library = self._library
        said: list[tuple[int, bytes]] = []

        def on_diagnostic(info: int, _: int) -> None:
            message = library.LLVMGetDiagInfoDescription(info)
            said.append((library.LLVMGetDiagInfoSeverity(info), ctypes.string_at(message)))
            library.LLVMDisposeMessage(message)

        handler = _ON_DIAGNOSTIC(on_diagnostic)
        context = library.LLVMContextCreate()
        library.LLVMContextSetDiagnosticHandler(context, handler, None)  # without one LLVM calls exit(1) on an error
        module = library.LLVMModuleCreateWithNameInContext(b"kernel", context)
        machine = self._target_machine(cpu, features)
        layout = library.LLVMCreateTargetDataLayout(machine)
        try:
            library.LLVMSetTarget(module, TRIPLE)
            library.LLVMSetModuleDataLayout(module, layout)
            library.LLVMSetModuleInlineAsm2(module, text, len(text))
            result, failure = self._emit(machine, module)
        finally:
            library.LLVMDisposeTargetData(layout)
            library.LLVMDisposeTargetMachine(machine)
            library.LLVMDisposeModule(module)
            library.LLVMContextDispose(context)
        errors = [text for severity, text in said if severity == _ERROR]
        if errors or result is None:
            raise Refused(*(errors or [failure]))
        return result, [text for severity, text in said if severity == _WARNING]

    def _target_machine(self, cpu: bytes, features: bytes) -> int:
        target, message = _pointer(), _pointer()
        if self._library.LLVMGetTargetFromTriple(TRIPLE, ctypes.byref(target), ctypes.byref(message)):
            raise Refused(self._take(message))
        return self._library.LLVMCreateTargetMachine(target, TRIPLE, cpu, features, _NO_OPTIMISATION, _PIC, 0)

    def _emit(self, machine: int, module: int) -> tuple[bytes | None, bytes]:
        """(object, what LLVM said of a failure)."""
        library = self._library
        buffer, message = _pointer(), _pointer()
        if library.LLVMTargetMachineEmitToMemoryBuffer(
            machine, module, _OBJECT_FILE, ctypes.byref(message), ctypes.byref(buffer)
        ):
            return None, self._take(message)
        data = ctypes.string_at(library.LLVMGetBufferStart(buffer), library.LLVMGetBufferSize(buffer))
        library.LLVMDisposeMemoryBuffer(buffer)
        return data, b""

    def _take(self, message: ctypes.c_void_p) -> bytes:
        """A message that LLVM gave away."""
        if not message.value:
            return b"no reason given"
        text = ctypes.string_at(message.value)
        self._library.LLVMDisposeMessage(message)
        return text

    def disassemble(self, code: bytes, cpu: bytes, features: bytes, address: int) -> bytes:
        """A line an instruction: address, size, text, with blanks between; what is no instruction has an empty text."""
        library = self._library
        decoder = library.LLVMCreateDisasmCPUFeatures(TRIPLE, cpu, features, None, 0, None, None)
        if not decoder:
            raise Refused(b"no disassembler for " + cpu)
        memory = ctypes.create_string_buffer(code, len(code))
        start, end = ctypes.addressof(memory), len(code)
        line = ctypes.create_string_buffer(1024)
        out: list[bytes] = []
        position = 0
        while position < end:
            size = library.LLVMDisasmInstruction(
                decoder, start + position, end - position, address + position, line, len(line)
            )
            text = line.value.strip().replace(b"\t", b" ") if size else b""
            size = size or min(4, end - position)
            out.append(b"%d %d %b" % (address + position, size, text))
            position += size
        library.LLVMDisasmDispose(decoder)
        return b"\n".join(out)


# --- messages


def write_message(stream: IO[bytes], fields: Sequence[bytes]) -> None:
    """Send one message."""
    parts = [struct.pack("<I", len(fields))]
    for field in fields:
        parts += (struct.pack("<I", len(field)), field)
    stream.write(b"".join(parts))
    stream.flush()


def read_message(stream: IO[bytes]) -> list[bytes] | None:
    """Receive one message; None at the end of the stream, also where it ends within a message."""
    count = _read_number(stream)
    if count is None:
        return None
    fields: list[bytes] = []
    for _ in range(count):
        size = _read_number(stream)
        if size is None:
            return None
        field = stream.read(size)
        if len(field) < size:
            return None
        fields.append(field)
    return fields


def _read_number(stream: IO[bytes]) -> int | None:
    data = stream.read(4)
    return struct.unpack("<I", data)[0] if len(data) == 4 else None


def answer(llvm: Llvm, request: Sequence[bytes]) -> list[bytes]:
    """The answer to one request."""
    what, *fields = request
    try:
        if what == b"assemble":
            cpu, features, text = fields
            data, warnings = llvm.assemble(text, cpu, features)
            return [b"ok", data, *warnings]
        if what == b"disassemble":
            cpu, features, address, code = fields
            return [b"ok", llvm.disassemble(code, cpu, features, int(address))]
        if what == b"version":
            return [b"ok", llvm.version().encode()]
    except Refused as refusal:
        return [b"refused", *refusal.args]
    return [b"refused", b"unknown request " + what]


def main(path: str) -> int:
    """Serve until stdin ends, which it does when the parent has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's is meant for the parent
    # Whatever a library prints goes to stderr: stdout carries messages only.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        llvm = Llvm(path)
    except (OSError, AttributeError) as error:
        write_message(output, [b"refused", str(error).encode()])
        return 1
    write_message(output, [b"ok", llvm.version().encode()])
    while (request := read_message(sys.stdin.buffer)) is not None:
        write_message(output, answer(llvm, request))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
