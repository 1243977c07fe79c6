"""Generates docs/language.md and docs/errors.md from the declarations; ``python -m mimw.tools.reference --check`` fails when they are stale.

Public names of `mimw.language` give the first; the op table gives its second half; the tables of error codes give the other file.
"""

from __future__ import annotations

import inspect
import re
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import mimw.language as ml
from mimw.frontend.error_codes import ERROR_CODES
from mimw.ir.opdef import OPS, ElementwiseOp, OpSpec
from mimw.ir.types import DType
from mimw.language.extra import libdevice
from mimw.passes.protocol.warn import WARNINGS

DOCS = Path(__file__).resolve().parents[2] / "docs"

OTHER_CODES: dict[str, str] = {
    "accumulator-permutation": "A loop carries accumulators in flight into the places of each other.",
    "amdgcn-fault": "The simulator of AMD's machine code: the code does what the ISA does not allow; the message names the instruction and the wave.",
    "autotune": "Autotuning is asked for what it cannot do, or no configuration fits.",
    "barrier-arrivals": "More arrivals come on an mbarrier in one phase than it counts.",
    "barrier-bytes": "The bytes that an mbarrier expects are not those that the copies on it bring.",
    "barrier-count": "The simulator: an mbarrier counts, or gets at once, more arrivals than the hardware can.",
    "barrier-live": "The simulator: barriers are made anew while somebody waits for them, or copies count on them.",
    "barrier-never-arrived": "A wait for an mbarrier on which nothing ever arrives.",
    "barrier-out-of-range": "The simulator: an index outside of an array of barriers.",
    "barrier-overrun": "The simulator: one arrival more than a phase of an mbarrier counts.",
    "bench": "A measurement is asked for what it cannot do.",
    "bulk-size": "The simulator: a bulk copy of a size that is no multiple of 16 bytes, or that does not fit its buffer.",
    "cluster-rank": "A rank or multicast target names a CTA that the cluster does not have.",
    "deadlock": "The tasks wait for barriers that never complete; the text says who waits for what.",
    "descriptor": "The simulator: a tensor descriptor of what TMA cannot copy.",
    "device-assert": "The condition of a `device_assert` is false: in the simulator, or in a launch on an AMD device (with `debug`).",
    "global-race": "The simulator, a warning: CTAs or tasks access one place of an array, one of them writes, and nothing orders them.",
    "index-out-of-range": "The simulator: an index of a gather or scatter outside of the buffer.",
    "inspect-file": "`mimw inspect` is not told a file and a kernel, or the file fails.",
    "inspect-kernel": "The file has no kernel of that name.",
    "inspect-signature": "The signature has more entries than the kernel has parameters.",
    "inspect-target": "The target that a command names is unknown.",
    "kernel-hang": "Waits in a kernel built with `hang_timeout` (or `debug`) gave up: it would never have ended. The text says who waited where.",
    "launch-alignment": "An argument breaks a promise of divisibility that the code was compiled for.",
    "launch-argument-type": "An argument is neither an array nor a scalar.",
    "launch-arguments": "Arguments are missing, too many, or given twice.",
    "launch-constexpr": "A constexpr argument is not hashable.",
    "launch-device": "Arrays lie on several devices, or on host and device.",
    "launch-driver": "The driver refused a call; the text says which and why.",
    "launch-dtype": "An array's elements are not what the code was compiled for.",
    "launch-grid": "The grid is not one to three integers within the device's limits.",
    "launch-host-array": "A host array is given to code compiled for a GPU.",
    "launch-no-grid": "A kernel is called without a grid.",
    "launch-option": "A launch option is unknown or out of range.",
    "launch-range": "An integer is not in the range that the code was compiled for.",
    "launch-shared-memory": "A CTA needs more shared memory than the device has.",
    "launch-signature": "The signature given to `compile` does not fit the parameters.",
    "launch-size": "More threads a CTA than the target has.",
    "launch-stream": "`stream` is no CUDA stream.",
    "launch-target": "The code's target does not run on the device, or is unknown.",
    "launch-threads": "The kernel needs too many registers for that many threads.",
    "layout-conflict": "No layout of a buffer in shared memory serves all its uses.",
    "livelock": "The simulator: the program polls memory that nobody changes any more.",
    "local-slice": "A slice of a buffer starts where the hardware cannot.",
    "matmul": "`matmul` is asked for what it cannot do.",
    "misaligned": "The simulator: an access at an address that is no multiple of its size, or a bulk copy at no multiple of 16.",
    "missing-fence": "The simulator, asked about fences: an engine touches what was written plainly with no proxy fence behind it.",
    "multicast-mask": "The simulator: a multicast to CTAs that the cluster does not have.",
    "named-barrier": "A named barrier's number or thread count is impossible, or there are too many of them.",
    "named-barrier-count": "The simulator: threads come to a named barrier in numbers that the hardware does not take, or that disagree.",
    "named-barrier-id": "The simulator: a named barrier whose number does not exist.",
    "negative-offset": "A TMA store begins below index 0 (simulators; the hardware stops).",
    "no-assembler": "Code for AMD is to be assembled and no LLVM is here.",
    "no-disassembler": "SASS is asked for and no disassembler is here.",
    "no-stage": "`mimw inspect` is asked for a stage that code for the target does not go through.",
    "out-of-bounds": "The simulator: an access outside of every array.",
    "outside-kernel": "A language function is called outside of a kernel.",
    "overwritten": "The simulator: a buffer is read after another one that shares its memory was written over it.",
    "ptx-fault": "The PTX simulator: the text does what the ISA does not allow; the message names the instruction and the threads.",
    "race": "The simulator: two tasks access one place and nothing orders them.",
    "read-before-wait": "The simulator: a buffer is read while an asynchronous operation still writes it.",
    "read-only": "The simulator: a store into memory that is read-only.",
    "registers": "The tasks ask for more registers than the CTA has.",
    "reinterpret": "The simulator: a view of other shape or type of a buffer that is not contiguous.",
    "remote-barrier": "The simulator: a copy counts on the barrier of a CTA other than the one that it goes to.",
    "remote-copy": "A copy between CTAs of a size that is no multiple of 16 bytes.",
    "schedule-result": "The simulator, a warning: the results depend on who comes first.",
    "shared-memory": "The kernel's buffers need more shared memory than the target has.",
    "sim-file": "`mimw sim` is not told a file, or is told to write where there is no folder.",
    "sim-kernel": "The program that `mimw sim` runs does not launch the kernel.",
    "sim-timeline": "A timeline is asked for in a format that there is not.",
    "slice-out-of-range": "The simulator: a slice outside of its buffer.",
    "slot-out-of-range": "The simulator: an index outside of a ring of buffers.",
    "tensor-descriptor": "TMA cannot copy the tensor or the blocks that a descriptor describes.",
    "tile-too-large": "A tile takes more registers a thread than any machine has.",
    "tma-block": "TMA cannot copy a block of this shape, or from how it lies in shared memory.",
    "unsupported": "The target cannot do this; the text says why.",
    "unawaited-copy": "The simulator: a copy into shared memory may still be under way when the kernel ends.",
    "unwritten-read": "The simulator, a warning: a buffer is read where nothing was ever written.",
    "wrapped-offset": "The simulator, a warning: an i32 offset wraps and reaches an address.",
    "write-before-wait": "The simulator: a buffer is written while an asynchronous operation still uses it.",
    "zero-step": "The simulator: a loop whose step is zero.",
}
"""Codes that are raised outside of language and frontend."""


def language_reference() -> str:
    """docs/language.md."""
    out = [
        "# Language reference",
        "",
        "Generated by `make docs` from the declarations. `import mimw.language as ml`.",
        "",
        "## What a kernel may say",
        "",
    ]
    for name in sorted(ml.__all__, key=str.lower):
        out += _language_entry(name, getattr(ml, name))
    out += [
        "",
        "## libdevice",
        "",
        f"`from mimw.language.extra import libdevice`. {_one_paragraph(inspect.getdoc(libdevice) or '')}",
        "",
    ]
    for name in sorted(libdevice.__all__):
        out += _libdevice_entry(name, getattr(libdevice, name))
    out += ["", "## Tile IR", "", "What the functions become; `mimw inspect --stage tile` shows it.", ""]
    for name in sorted(OPS):
        out += _op_entry(OPS[name])
    return "\n".join(out).rstrip() + "\n"


def _language_entry(name: str, value: Any) -> list[str]:
    if isinstance(value, DType):
        return [f"- `ml.{name}`: the type {value.name}, {value.bits} bits."]
    text = _one_paragraph(inspect.getdoc(value) or "")
    if isinstance(value, ModuleType):
        return [f"- `ml.{name}`, a module: {text}"]
    if isinstance(value, type) and issubclass(value, Enum):
        return [f"- `ml.{name}`: {text} One of {', '.join(f'`{member.name}`' for member in value)}."]
    return [f"- `ml.{name}{_signature(value)}`: {text}"]


def _libdevice_entry(name: str, value: Any) -> list[str]:
    """A function of its own, or the name of one of the language or of libdevice."""
    if value.__module__ == libdevice.__name__ and value.__name__ == name:
        return [f"- `{name}{_signature(value)}`: {_one_paragraph(inspect.getdoc(value) or '')}"]
    home = "" if value.__module__ == libdevice.__name__ else "ml."
    return [f"- `{name}`: `{home}{value.__name__}`."]


_HANDLES = (ml.tensor, ml.buffered_tensor, ml.mbarrier, ml.tensor_descriptor)
"""Classes that a kernel names in annotations and never calls: functions of the language make them."""


def _signature(value: Any) -> str:
    """How a name is called: annotations as they are written, defaults as a kernel would write them."""
    if value in _HANDLES:
        return ""
    text = str(inspect.signature(value))
    if isinstance(value, type):
        text = text.removesuffix(" -> None").removesuffix(" -> 'None'")  # what __init__ gives, not the call
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # postponed annotations are strings
    return re.sub(r"<([\w.]+): [^>]+>", r"\1", text)  # members of enums


def _one_paragraph(text: str) -> str:
    return " ".join(text.split())


def _op_entry(spec: OpSpec) -> list[str]:
    if issubclass(spec.cls, ElementwiseOp):
        head = f"{spec.cls.row.arity} operands"
    else:
        head = ", ".join([f.name for f in spec.operands] + [f"{{{f.name}}}" for f in spec.attrs]) or "no operands"
    bound = f" Error: {spec.bound or f'{spec.ulp:g} ulp'}." if spec.bound or spec.ulp else ""
    return [f"- `{spec.name}` ({head}): {_one_paragraph(spec.doc)}{bound}"]


def error_reference() -> str:
    """docs/errors.md."""
    out = [
        "# Error codes",
        "",
        "Generated by `make docs`. Every message is `file:line:column: error[code]: what`, the source line with a caret, notes, and a hint.",
        "",
        "| code | meaning |",
        "|---|---|",
    ]
    codes = {**OTHER_CODES, **ERROR_CODES}
    out += [f"| `{code}` | {codes[code]} |" for code in sorted(codes)]
    out += [
        "",
        "## Warnings",
        "",
        "What only looks wrong when a kernel is compiled: `mimw.MimwWarning`, at the kernel's line. `# mimw: ignore[code]` at that line silences it.",
        "",
        "| code | meaning |",
        "|---|---|",
    ]
    out += [f"| `{code}` | {WARNINGS[code]} |" for code in sorted(WARNINGS)]
    return "\n".join(out) + "\n"


def main() -> int:
    """Write the files, or with ``--check`` compare them; 1 when they are stale."""
    wanted = {DOCS / "language.md": language_reference(), DOCS / "errors.md": error_reference()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.name} is stale: run `make docs`")
        return 1 if stale else 0
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
