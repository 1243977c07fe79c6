"""What `mimw doctor` says of AMD: the assembler, the devices, and what is missing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mimw.runtime import hip_api
from mimw.tools.doctor import doctor
from tests.runtime.fake_hip import FakeHip


def words(text: str) -> str:
    """The text on one line: tables break theirs."""
    return " ".join(text.split())


def test_devices_of_amd_are_listed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    hip_api.use_library(FakeHip())
    try:
        assert doctor() == 0
        hip_api.use_library(FakeHip("gfx1100"))
        assert doctor() == 0
    finally:
        hip_api.use_library(None)
    out = words(capsys.readouterr().out)
    assert "cuda:1 AMD Instinct MI300X gfx942 0 of 0 MiB free 65536 bytes" in out
    assert "no target of mimw (gfx1100)" in out
    assert "assemble for gfx942, gfx950 LLVM " in out


def test_what_is_missing_is_said() -> None:
    environment = {**os.environ, "MIMW_LLVM": "/nonexistent/libLLVM.so", "COLUMNS": "300"}
    command = [sys.executable, "-m", "mimw", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "no LLVM: pip install 'mimw[amd]'" in words(done.stdout)
    assert "MIMW_LLVM=/nonexistent/libLLVM.so is no file" in words(done.stdout)
    if not hip_api.available():
        assert f"none: {hip_api.why_unavailable()}" in words(done.stdout)
