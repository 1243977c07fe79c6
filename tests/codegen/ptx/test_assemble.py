"""The assembler: what it reports, and how it fails."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from mimw.codegen.ptx import assemble as module
from mimw.codegen.ptx.assemble import (
    Assembled,
    AssemblerError,
    assemble,
    disassemble,
    find_ptxas,
    find_tool,
    nearest_loc,
    ptxas_version,
)
from mimw.diagnostics import InternalError

needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas on this machine")

GOOD = """.version 8.0
.target sm_90a
.address_size 64
.file 1 "kernel.py"
.visible .entry k(.param .u64 out)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<2>;
	.shared .align 4 .b8 buffer[256];
	.loc 1 12 3
	ld.param.u64 %rd0, [out];
	mov.u32 %r0, %tid.x;
	st.shared.b32 [buffer], %r0;
	.loc 1 13 7
	ld.shared.b32 %r1, [buffer+4];
	st.global.b32 [%rd0], %r1;
	ret;
}
"""


def test_tools_are_found_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment, the PATH, CUDA_HOME, the PyPI package; each comes before those behind it."""
    name = "mimw_tool"
    places = [tmp_path / "path", tmp_path / "cuda" / "bin", tmp_path / "site" / "nvidia" / "cu13" / "bin"]
    for folder in places:
        folder.mkdir(parents=True)
        tool = folder / name
        tool.write_text("")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(places[0]))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    package = SimpleNamespace(submodule_search_locations=[str(tmp_path / "site" / "nvidia")])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: package)
    chosen = tmp_path / "chosen"
    chosen.write_text("")
    for folder in places:
        monkeypatch.setattr(module, "_found", {})
        assert find_tool(name) == str(folder / name)
        monkeypatch.setenv("MIMW_MIMW_TOOL", str(chosen))
        assert find_tool(name) == str(chosen)
        monkeypatch.delenv("MIMW_MIMW_TOOL")
        (folder / name).unlink()
    monkeypatch.setattr(module, "_found", {})
    assert find_tool(name) is None


@needs_ptxas
def test_report_of_a_good_text() -> None:
    done = assemble(GOOD, "sm_90a")
    assert done.cubin[:4] == b"\x7fELF"
    assert 0 < done.registers < 32
    assert (done.shared, done.spill_stores, done.spill_loads, done.warnings) == (256, 0, 0, [])


@needs_ptxas
def test_refusal_names_the_source_line() -> None:
    with pytest.raises(AssemblerError, match=r"kernel.py:13:7: .*refused PTX line 15") as caught:
        assemble(GOOD.replace("ld.shared.b32 %r1", "ld.shared.b32 %r7"), "sm_90a")
    assert caught.value.ptx_line == 15
    assert "ld.shared.b32 %r7, [buffer+4];" in str(caught.value)


@needs_ptxas
def test_unknown_target_is_refused() -> None:
    with pytest.raises(AssemblerError, match="ptxas failed"):
        assemble(GOOD, "sm_1")


@needs_ptxas
def test_wgmma_warning_is_data() -> None:
    text = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
.reqntid 128, 1, 1
.minnctapersm 1
{
	.reg .b64 %rd<2>;
	.reg .f32 %f<4>;
	.reg .b32 %r0;
	.reg .pred %p0;
	mov.b64 %rd1, 5;
	mov.u32 %r0, %tid.x;
	setp.lt.u32 %p0, %r0, 17;
	ld.param.u64 %rd0, [out];
	wgmma.fence.sync.aligned;
	@%p0 wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd1, %rd1, 0, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	st.global.v4.f32 [%rd0], {%f0, %f1, %f2, %f3};
	ret;
}
"""
    codes = [warning.code for warning in assemble(text, "sm_90a").warnings]
    assert codes, "a product under a predicate of the thread serialises"
    assert all(code.startswith("C75") for code in codes)


def test_log_of_several_entries_gives_the_largest() -> None:
    log = (
        "    0 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 1 barriers, 1024 bytes smem\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 168 registers, 512 bytes smem\n"
    )
    done = Assembled(b"", log)
    assert (done.registers, done.spill_stores, done.spill_loads, done.shared) == (168, 16, 24, 1024)


def test_nearest_loc() -> None:
    assert str(nearest_loc(GOOD, 12)) == "kernel.py:12:3"
    assert str(nearest_loc(GOOD, 16)) == "kernel.py:13:7"
    assert nearest_loc(GOOD, 8) is None


@needs_ptxas
def test_version_is_numbers() -> None:
    version = ptxas_version()
    assert version is not None
    assert version.split(".")[0].isdigit()


def test_environment_variable_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "ptxas"
    own.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("MIMW_PTXAS", str(own))
    assert find_ptxas() == str(own)
    monkeypatch.setenv("MIMW_PTXAS", str(tmp_path / "missing"))
    assert find_ptxas() is None
    with pytest.raises(InternalError, match="there is no ptxas"):
        assemble(GOOD, "sm_90a")


def test_search_follows_path_then_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "sometool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setattr(module, "_found", {})
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_tool("sometool") == str(tool)
    assert find_tool("no-such-tool") is None


@needs_ptxas
def test_two_threads_assemble_at_once() -> None:
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(assemble(GOOD, "sm_90a").cubin)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len(set(map(len, results))) == 1


@needs_ptxas
@pytest.mark.skipif(find_tool("nvdisasm") is None and find_tool("cuobjdump") is None, reason="there is no disassembler")
def test_disassembly_shows_instructions() -> None:
    text = disassemble(assemble(GOOD, "sm_90a").cubin)
    assert text is not None
    assert "STG" in text


def test_disassembly_of_nonsense_is_none() -> None:
    assert disassemble(b"nonsense") is None
