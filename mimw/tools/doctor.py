"""`mimw doctor`: what this machine has and can do, and what is missing for the rest."""

from __future__ import annotations

import importlib.metadata
import platform

from rich.console import Console
from rich.table import Table

from mimw.codegen.amdgcn.binary.llvm import HOW_TO_GET, find_llvm, llvm_version, why_no_llvm
from mimw.codegen.ptx.assemble import find_ptxas, find_tool, ptxas_version
from mimw.runtime import driver_api, hip_api
from mimw.runtime.cache import default_folder
from mimw.target import TARGETS

_PACKAGES = ("numpy", "ml_dtypes", "cuda-bindings", "rich", "torch", "hypothesis", "pytest")


def doctor() -> int:
    """Print the tables; 0 when kernels can be compiled and simulated here."""
    console = Console(markup=False, soft_wrap=True)
    console.print(_software())
    console.print(_tools())
    console.print(_devices())
    console.print(_hip_devices())
    return 0


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=bool(columns), box=None, padding=(0, 2))
    for c in columns or ("", ""):
        table.add_column(c, overflow="fold")
    return table


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _software() -> Table:
    table = _table("Software")
    table.add_row("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in ("mimw", *_PACKAGES):
        table.add_row(package, _version(package))
    table.add_row("disk cache", default_folder() or "off (MIMW_CACHE=0)")
    return table


def _tools() -> Table:
    table = _table("What can be done")
    ptxas, disassembler = find_ptxas(), find_tool("nvdisasm") or find_tool("cuobjdump")
    nvidia, amd = ([t.name for t in TARGETS.values() if t.vendor == vendor] for vendor in ("nvidia", "amd"))
    table.add_row("compile to PTX", "yes: " + ", ".join(nvidia))
    table.add_row("compile to AMDGCN", "yes: " + ", ".join(amd))
    table.add_row("run in the simulators", "yes: NumPy arrays run in the tile simulator")
    table.add_row(
        "assemble", f"ptxas {ptxas_version()}, {ptxas}" if ptxas else "no ptxas: pip install nvidia-cuda-nvcc"
    )
    table.add_row("show SASS", disassembler or "no nvdisasm or cuobjdump: pip install nvidia-cuda-nvdisasm")
    llvm = find_llvm()
    table.add_row(
        "assemble for " + ", ".join(amd),
        f"LLVM {llvm_version()}, {llvm}" if llvm else f"no LLVM: {HOW_TO_GET} ({why_no_llvm()})",
    )
    table.add_row(
        "run as code for them",
        "yes: mimw sim FILE.py --target gfx942, or MIMW_SIM=gfx942" if llvm else "needs LLVM, too",
    )
    return table


def _hip_devices() -> Table:
    if not hip_api.available():
        table = _table("AMD devices", "device")
        table.add_row(f"none: {hip_api.why_unavailable()}")
        return table
    table = _table("AMD devices", "device", "target", "memory", "shared memory a CTA")
    for i in range(hip_api.device_count()):
        free, total = hip_api.memory_info(i)
        table.add_row(
            f"cuda:{i} {hip_api.device_name(i)}",
            hip_api.target_name(i) or f"no target of mimw ({hip_api.architecture(i)})",
            f"{free >> 20} of {total >> 20} MiB free",
            f"{hip_api.shared_limit(i)} bytes",
        )
    return table


def _devices() -> Table:
    table = _table("CUDA devices", "device", "target", "memory", "shared memory a CTA")
    if not driver_api.available():
        table.add_row("none: libcuda.so.1 is not here, or finds no device", "", "", "")
        return table
    for i in range(driver_api.device_count()):
        free, total = driver_api.memory_info(i)
        table.add_row(
            f"cuda:{i} {driver_api.device_name(i)}",
            driver_api.target_name(i) or "no target of mimw",
            f"{free >> 20} of {total >> 20} MiB free",
            f"{driver_api.shared_limit(i)} bytes",
        )
    return table
