"""LLVM as assembler and disassembler of AMDGCN: where it is, and the conversation with the process that holds it.

Owns: the search for a shared LLVM, the helper process (one a Python process, started on first use, again after a crash),
`assemble_text`, `disassemble_bytes`. Assumes the messages of `llvm_worker.py`. Must not know machine IR or kernels.

LLVM never runs inside this process: some bad input makes it call `abort`. A process that is forked gets a helper of its
own; a helper ends when its parent does. Safe in several threads: they take turns.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import IO

from mimw.codegen.amdgcn.binary.llvm_worker import read_message, write_message
from mimw.diagnostics import CompilationError, InternalError

# Relative to the folder of PyPI's namespace package `rocm`.
_IN_ROCM_PACKAGE = ("llvm/librocmllvm.so", "bindings/llvm/libLLVM.so")
_SYSTEM_FOLDERS = (
    "/opt/rocm/llvm/lib",
    "/opt/rocm/lib/llvm/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
)
# The first LLVM whose assembler knows gfx950 (LLVM 19 knows gfx942 only).
OLDEST_LLVM = 20
HOW_TO_GET = "pip install 'mimw[amd]' (the package rocm-llvm-python), or set MIMW_LLVM to the path of a shared LLVM"


class LlvmRefusal(Exception):
    """LLVM found errors in a text; `messages` are its own, one an error."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("\n".join(messages))
        self.messages = list(messages)


class LlvmCrash(InternalError):
    """The helper process ended in the middle of a request; `log` is what LLVM printed."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


# --- the library


def candidates() -> Iterator[str]:
    """Paths at which a shared LLVM lies, best first: MIMW_LLVM alone if set, else PyPI's, ROCm's, the distribution's."""
    chosen = os.environ.get("MIMW_LLVM")
    if chosen:
        yield from [chosen] if os.path.isfile(chosen) else []
        return
    spec = importlib.util.find_spec("rocm")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for relative in _IN_ROCM_PACKAGE:
            path = os.path.join(folder, relative)
            if os.path.isfile(path):
                yield path
    for folder in _SYSTEM_FOLDERS:
        yield from sorted(_shared_llvms(folder), key=_version_in_name, reverse=True)


def _shared_llvms(folder: str) -> list[str]:
    """The shared LLVMs of a folder that are new enough, as far as their names tell; several names of one file once."""
    names = [p for pattern in ("libLLVM.so*", "libLLVM-*.so*") for p in glob.glob(os.path.join(folder, pattern))]
    return list({os.path.realpath(p): p for p in sorted(names) if _version_in_name(p) >= OLDEST_LLVM}.values())


def _version_in_name(path: str) -> int:
    """22 for ``libLLVM-22.so`` and ``libLLVM.so.22.1``; `OLDEST_LLVM` where the name has no number."""
    for part in os.path.basename(os.path.realpath(path)).replace("-", ".").split("."):
        if part.isdigit():
            return int(part)
    return OLDEST_LLVM


def library_stamp() -> str:
    """For cache keys: the first candidate's path, size and time of change, without loading it; "none" where there is none."""
    path = next(candidates(), None)
    if path is None:
        return "none"
    status = os.stat(path)
    return f"{path} {status.st_size} {status.st_mtime_ns}"


class _Library:
    """The library in use: the path once one has answered, its version, and why others did not do."""

    path: str | None = None
    version: str | None = None
    reasons: tuple[str, ...] = ()
    chosen: str | None = None  # MIMW_LLVM as it was at the search


_library = _Library()


def find_llvm() -> str | None:
    """The path of a shared LLVM whose assembler knows AMD's targets, or None. Asked of the library itself, once."""
    with _lock:
        _search()
        return _library.path


def llvm_version() -> str | None:
    """The version of the LLVM in use (``22.0.0``), or None when there is none."""
    with _lock:
        _search()
        return _library.version


def why_no_llvm() -> str:
    """For people: what was looked at and why it does not do; empty when an LLVM is found."""
    with _lock:
        _search()
        return "" if _library.path else "; ".join(_library.reasons) or "no shared LLVM with AMD's targets found"


def _search() -> None:
    """Start a helper on the first library that does. The caller holds the lock."""
    chosen = os.environ.get("MIMW_LLVM")
    if _library.chosen == chosen and (_library.path or _library.reasons):
        return
    _stop()
    _library.chosen = chosen
    _library.path = _library.version = None
    reasons = [f"MIMW_LLVM={chosen} is no file"] if chosen and not os.path.isfile(chosen) else []
    for path in candidates():
        helper = _Helper(path)
        if helper.version and int(helper.version.split(".")[0]) < OLDEST_LLVM:
            reasons.append(f"{path}: LLVM {helper.version}, {OLDEST_LLVM} or newer is needed")
            helper.close()
        elif helper.version:
            _library.path, _library.version = path, helper.version
            _adopt(helper)
            break
        else:
            reasons.append(f"{path}: {helper.refusal}")
    _library.reasons = tuple(reasons) or ("no shared LLVM with AMD's targets found",)


# --- the helper process


class _Helper:
    """A running helper. `version` is its LLVM's; empty when the library could not be used, and `refusal` says why."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.owner = os.getpid()
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "llvm_worker.py")
        command = [sys.executable or "python3", "-I", "-S", script, path]
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        hello = read_message(self._stream(self._process.stdout))
        self.version = hello[1].decode() if hello and hello[0] == b"ok" else ""
        self.refusal = ""
        if not self.version:
            self.refusal = hello[1].decode(errors="replace") if hello else f"the process ended: {self.ended()}"
            self.close()

    @staticmethod
    def _stream(stream: IO[bytes] | None) -> IO[bytes]:
        assert stream is not None
        return stream

    def ask(self, fields: Sequence[bytes]) -> list[bytes] | None:
        """The answer to a request; None when the process ended instead."""
        try:
            write_message(self._stream(self._process.stdin), fields)
        except BrokenPipeError:
            return None
        return read_message(self._stream(self._process.stdout))

    def ended(self) -> str:
        """How a process that has ended did so, with the end of what it printed."""
        code = self._process.wait()
        self._log.seek(0)
        log = self._log.read().decode(errors="replace").strip()[-4000:]
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return f"{how}\n{log}" if log else how

    def close(self) -> None:
        """End the process; a helper that a fork brought along is left to its owner."""
        for stream in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):
                self._stream(stream).close()
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
        else:
            self._process.returncode = 0  # not this process's child: nothing to wait for


_lock = threading.RLock()
_helper: _Helper | None = None


def _adopt(helper: _Helper) -> None:
    global _helper
    _helper = helper


def _stop() -> None:
    global _helper
    if _helper is not None:
        _helper.close()
        _helper = None


def _after_fork() -> None:
    """In the child: the parent's helper is not ours, and a lock that another thread held will never be released."""
    global _lock
    _lock = threading.RLock()
    _stop()


atexit.register(_stop)
os.register_at_fork(after_in_child=_after_fork)


def _ask(fields: Sequence[bytes]) -> list[bytes]:
    """The fields of a good answer. `LlvmRefusal`, `LlvmCrash`, `CompilationError` where there is no LLVM."""
    with _lock:
        _search()
        path = _library.path
        if path is None:
            raise CompilationError(
                "no-assembler", f"there is no assembler for AMD's targets: {why_no_llvm()}", hint=HOW_TO_GET
            )
        helper = _helper if _helper is not None else _Helper(path)
        if not helper.version:
            raise LlvmCrash(f"LLVM ({path}) does not start: {helper.refusal}", helper.refusal)
        _adopt(helper)
        try:
            answer = helper.ask(fields)
        except BaseException:  # also a KeyboardInterrupt: half a conversation cannot be taken up again
            _stop()
            raise
        if answer is None:
            how = helper.ended()
            _stop()
            raise LlvmCrash(f"LLVM ended while it worked on a text: {how}", how)
    if answer[0] != b"ok":
        raise LlvmRefusal([m.decode(errors="replace") for m in answer[1:]])
    return answer[1:]


def assemble_text(text: str, cpu: str, features: str = "") -> tuple[bytes, list[str]]:
    """(relocatable ELF object, warnings) of a text for ``gfx942``; `LlvmRefusal` holds all of its errors at once."""
    data, *warnings = _ask([b"assemble", cpu.encode(), features.encode(), text.encode()])
    return data, [w.decode(errors="replace") for w in warnings]


def disassemble_bytes(code: bytes, cpu: str, address: int = 0, features: str = "") -> list[tuple[int, str, int]]:
    """(address, text, size in bytes) of every instruction, the first at `address`; what is no instruction has text ""."""
    (lines,) = _ask([b"disassemble", cpu.encode(), features.encode(), b"%d" % address, code])
    out: list[tuple[int, str, int]] = []
    for line in lines.decode().splitlines():
        where, size, text = line.split(" ", 2)
        out.append((int(where), text, int(size)))
    return out
