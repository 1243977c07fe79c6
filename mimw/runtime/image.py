"""Which of a kernel's texts and objects a device loads, and whether the device has what it needs.

Says so in `LaunchError`s at the launch. Loads nothing and knows no argument.
"""

from __future__ import annotations

from mimw.diagnostics import InternalError, LaunchError
from mimw.runtime import hip_api
from mimw.runtime.convention import KernelMetadata
from mimw.runtime.driver_api import Function, capability, target_for
from mimw.runtime.launch_errors import caller_loc
from mimw.target import get_target


def choose_image(asm: dict[str, str | bytes], meta: KernelMetadata, device: int) -> str | bytes:
    """The code object, cubin or PTX to load on the device; `LaunchError` when code for the target cannot run there.

    A cubin runs on its own compute capability and later minor ones, PTX on all later ones; code of an arch-specific
    target (``sm_90a``) on its own only.
    """
    if get_target(meta.target).vendor == "amd":
        return _choose_code_object(asm, meta, device)
    cubin, ptx = asm.get("cubin"), asm.get("ptx")
    if not cubin and not ptx:
        raise InternalError(f"kernel {meta.name!r}: neither cubin nor PTX to load, only {', '.join(asm) or 'nothing'}")
    major, minor = capability(device)
    arch, here = get_target(meta.target).arch, 10 * major + minor
    later = arch < here and not meta.target.endswith("a")
    if cubin and (arch == here or (later and arch // 10 == major)):
        return cubin
    if ptx and (arch == here or later):
        return ptx
    message = (
        f"kernel {meta.name!r} is compiled for {meta.target}; cuda:{device} has compute capability {major}.{minor}"
    )
    raise _wrong_target(message, target_for((major, minor)))


def _choose_code_object(asm: dict[str, str | bytes], meta: KernelMetadata, device: int) -> bytes:
    """The code object, which runs on its own architecture only."""
    image, here = asm.get("hsaco"), hip_api.architecture(device)
    if not isinstance(image, bytes):
        raise InternalError(f"kernel {meta.name!r}: no code object to load, only {', '.join(asm) or 'nothing'}")
    if here != meta.target:
        message = f"kernel {meta.name!r} is compiled for {meta.target}; cuda:{device} is a {here}"
        raise _wrong_target(message, hip_api.target_name(device))
    return image


def _wrong_target(message: str, name: str | None) -> LaunchError:
    hint = f"compile with target={name!r}" if name else "mimw has no target for this device"
    return LaunchError("launch-target", message, caller_loc(), hint=hint)


def check_shared(head: str, needed: int, limit: int) -> None:
    """`LaunchError` when a CTA would need more shared memory than the device has."""
    if needed > limit:
        message = f"{head}: a CTA needs {needed} bytes of shared memory, the device has {limit}"
        raise LaunchError(
            "launch-shared-memory", message, caller_loc(), hint="use smaller tiles or fewer stages (num_stages)"
        )


def check_threads(head: str, threads: int, function: Function) -> None:
    """`LaunchError` when a CTA would have more threads than the device can run of this function."""
    if threads > function.max_threads:
        message = (
            f"{head}: a CTA has {threads} threads, the device can run {function.max_threads} of this kernel, "
            f"which needs {function.registers} registers a thread"
        )
        raise LaunchError("launch-threads", message, caller_loc(), hint="use fewer warps (num_warps), or set maxnreg")
