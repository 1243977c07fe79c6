"""CPU time of ``import mimw, mimw.language`` over that of bare Python, median of 7. Bar: 0.25 s."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys


def cpu_seconds(code: str) -> float:
    """User and system time of a Python process that runs `code`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    code = "import mimw, mimw.language"
    cpu_seconds(code)
    pairs = [(cpu_seconds("pass"), cpu_seconds(code)) for _ in range(7)]
    extra = statistics.median(b - a for a, b in pairs)
    print(
        f"{code}: {extra:.3f} s of CPU over bare Python ({statistics.median(a for a, _ in pairs):.3f} s), median of 7 (bar 0.25)"
    )


if __name__ == "__main__":
    main()
