"""PTX text to a cubin, by `ptxas`; and a cubin to SASS text, by `nvdisasm` or `cuobjdump`.

Owns the search for the tools, the reading of their logs (registers, spills, shared bytes, C75xx warnings as data),
and the mapping of an assembler error to the source line that the text names. Knows no IR. Safe in several threads:
every call works in a directory of its own, and what is cached is idempotent.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

from mimw.diagnostics import InternalError, Loc

_SUMMARY = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_WARNING = re.compile(r"\b(C75\d\d)\b")
_ERROR = re.compile(r"line (\d+);\s*(?:error|fatal)\s*:\s*(.*)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")

_found: dict[str, str | None] = {}
_versions: dict[str, str] = {}


class Warning75:
    """A wgmma or setmaxnreg remark of ptxas: `code` ("C7510"), `text`, the whole line."""

    __slots__ = ("code", "text")

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text

    def __repr__(self) -> str:
        return f"{self.code}: {self.text}"


class Assembled:
    """What ptxas made of a text: `cubin` bytes; `registers` a thread, `spill_stores`, `spill_loads` and `shared`
    (static) in bytes, each the largest over the entries; `warnings` (C75xx); the whole `log`.
    """

    __slots__ = ("cubin", "log", "registers", "shared", "spill_loads", "spill_stores", "warnings")

    def __init__(self, cubin: bytes, log: str) -> None:
        self.cubin = cubin
        self.log = log
        self.registers = _largest(_SUMMARY, log, 1)
        self.shared = _largest(_SMEM, log, 1)
        self.spill_stores = _largest(_SPILLS, log, 1)
        self.spill_loads = _largest(_SPILLS, log, 2)
        self.warnings = _warnings(log)


def _largest(pattern: re.Pattern[str], log: str, group: int) -> int:
    return max((int(m[group]) for m in pattern.finditer(log)), default=0)


def _warnings(log: str) -> list[Warning75]:
    found: list[Warning75] = []
    for line in log.splitlines():
        match = _WARNING.search(line)
        if match is not None:
            found.append(Warning75(match[1], line.strip()))
    return found


class AssemblerError(InternalError):
    """ptxas refused the text. `ptx_line` is the 1-based line of the text (0: ptxas named none), `log` what it said."""

    def __init__(self, message: str, loc: Loc | None, ptx_line: int, log: str) -> None:
        super().__init__(message, loc)
        self.ptx_line = ptx_line
        self.log = log


# --- the tools


def find_tool(name: str) -> str | None:
    """The path of ``ptxas``, ``nvdisasm`` or ``cuobjdump``, or None.

    Looked for in the environment (MIMW_PTXAS for ptxas), on the PATH, under CUDA_HOME, in the PyPI package, and in
    /usr/local/cuda: what somebody chose comes before what may have lain there for years. The answer is kept, except
    when the environment variable decides.
    """
    chosen = os.environ.get(f"MIMW_{name.upper()}")
    if chosen:
        return chosen if os.path.isfile(chosen) else None
    if name not in _found:
        _found[name] = _search(name)
    return _found[name]


def _search(name: str) -> str | None:
    path = shutil.which(name)
    if path is not None:
        return path
    folders = [os.path.join(os.environ[v], "bin") for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        folders += [os.path.join(root, sub, "bin") for sub in ("cu13", "cuda_nvcc", "cu12")]
    folders.append("/usr/local/cuda/bin")
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def find_ptxas() -> str | None:
    """The path of the assembler, or None when there is none."""
    return find_tool("ptxas")


def ptxas_version(path: str | None = None) -> str | None:
    """The version of the assembler as it says it ("13.0.88"), or None when there is none."""
    path = path or find_ptxas()
    if path is None:
        return None
    if path not in _versions:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        match = re.search(r"V(\d+\.\d+\.\d+)", text) or re.search(r"release (\d+\.\d+)", text)
        _versions[path] = match[1] if match else "unknown"
    return _versions[path]


# --- assembling


def assemble(ptx: str, target_name: str, options: Sequence[str] = ()) -> Assembled:
    """Assemble `ptx` for ``"sm_90a"`` (or another name that ptxas knows) with further command-line options.

    `AssemblerError` (with the source place that the text gives) when ptxas refuses the text, `InternalError` when
    there is no ptxas.
    """
    tool = find_ptxas()
    if tool is None:
        raise InternalError(
            "there is no ptxas: install the package nvidia-cuda-nvcc, or set MIMW_PTXAS to the path of the program"
        )
    with tempfile.TemporaryDirectory(prefix="mimw-") as folder:
        source, output = os.path.join(folder, "kernel.ptx"), os.path.join(folder, "kernel.cubin")
        with open(source, "w", encoding="utf-8") as file:
            file.write(ptx)
        command = [tool, f"-arch={target_name}", "-v", *options, source, "-o", output]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise InternalError(f"{tool} does not start: {error}") from error
        log = (done.stdout + done.stderr).replace(source, "kernel.ptx")
        if done.returncode != 0 or not os.path.exists(output):
            raise _refusal(ptx, log)
        with open(output, "rb") as file:
            return Assembled(file.read(), log)


def _refusal(ptx: str, log: str) -> AssemblerError:
    match = _ERROR.search(log)
    if match is None:
        return AssemblerError(f"ptxas failed: {log.strip()}", None, 0, log)
    number = int(match[1])
    lines = ptx.splitlines()
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    message = f"ptxas refused PTX line {number}: {match[2].strip()}\n    {text}"
    return AssemblerError(message, nearest_loc(ptx, number), number, log)


def nearest_loc(ptx: str, line: int) -> Loc | None:
    """The source place of a line of the text: the last `.loc` at or above it, or None."""
    lines = ptx.splitlines()
    for text in reversed(lines[:line]):
        match = _LOC.match(text)
        if match is not None:
            files = {m[1]: m[2] for m in _FILE.finditer(ptx)}
            return Loc(files.get(match[1], "<unknown>"), int(match[2]), int(match[3]))
        if ".entry" in text:
            return None
    return None


def disassemble(cubin: bytes) -> str | None:
    """The SASS text of a cubin, or None when no disassembler is present or it fails."""
    for name, options in (("nvdisasm", ["-c"]), ("cuobjdump", ["-sass"])):
        tool = find_tool(name)
        if tool is None:
            continue
        with tempfile.TemporaryDirectory(prefix="mimw-") as folder:
            path = os.path.join(folder, "kernel.cubin")
            with open(path, "wb") as file:
                file.write(cubin)
            done = subprocess.run([tool, *options, path], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout
    return None
