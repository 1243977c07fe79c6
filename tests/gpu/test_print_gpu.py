"""Printing and assertions on a CUDA device: a child process runs the kernels, its output is compared with the tile simulator's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.codegen.ptx.print_kernels import cases
from tests.gpu.print_child import MARK

pytestmark = pytest.mark.gpu

_ROOT = Path(__file__).parents[2]


def run_child(*args: str) -> dict[str, list[str]]:
    """Section -> lines of the child's standard output."""
    command = [sys.executable, "-m", "tests.gpu.print_child", *args]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=500, check=False)
    found: dict[str, list[str]] = {}
    lines: list[str] = found.setdefault("", [])
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            lines = found.setdefault(line.removeprefix(MARK), [])
        else:
            lines.append(line)
    assert "end" in found, done.stdout[-2000:] + done.stderr[-2000:]
    return found


@pytest.fixture(scope="module")
def printed() -> dict[str, list[str]]:
    """What each case printed on the device."""
    return run_child()


@pytest.mark.parametrize("name", list(cases()))
def test_the_lines_are_those_of_the_tile_simulator(
    name: str, printed: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    kernel, grid, args, constants = cases()[name]
    kernel[grid](*args, **constants)
    expected = capsys.readouterr().out.splitlines()
    assert sorted(printed[name]) == sorted(expected)


def test_a_failed_assertion() -> None:
    found = run_child("211")
    assert found["off"] == []
    (line,) = found["on"]
    assert line.endswith(": assertion failed: 100% positive, pid (0, 0, 0), idx (211)") and "print_kernels.py:" in line
    assert "torch" in found
    assert "device_assert" in "\n".join(found["launch"])
