"""Text to machine code and back by LLVM: symbols, errors at the user's line, crashes of the helper process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mimw.codegen.amdgcn.binary import llvm
from mimw.codegen.amdgcn.binary.assemble import AssemblerError, assemble, disassemble, nearest_loc
from mimw.diagnostics import Loc

KERNEL = """
.text
.globl scale
.p2align 8
.type scale,@function
scale:
  s_load_dwordx2 s[2:3], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  s_branch done
  s_nop 1
done:
  s_endpgm
end:
.size scale, end-scale
"""


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_text_to_code_and_back(target: str) -> None:
    done = assemble(KERNEL, target)
    assert done.symbols["scale"] == (0, 24)
    assert done.symbols["done"] == (20, 0)
    assert len(done.code) == 24  # LLVM's padding is gone
    assert done.warnings == []
    found = [(i.address, i.size, i.text) for i in disassemble(done.code, target, 0x1000)]
    assert found == [
        (0x1000, 8, "s_load_dwordx2 s[2:3], s[0:1], 0x0"),
        (0x1008, 4, "s_waitcnt lgkmcnt(0)"),
        (0x100C, 4, "s_branch 1"),
        (0x1010, 4, "s_nop 1"),
        (0x1014, 4, "s_endpgm"),
    ]


def test_bytes_that_are_no_instruction_have_no_text() -> None:
    code = bytes.fromhex("000080bf ffffffff 0000")
    assert [(i.address, i.size, i.text) for i in disassemble(code, "gfx942")] == [
        (0, 4, "s_nop 0"),
        (4, 4, ""),
        (8, 2, ""),
    ]


def test_each_target_has_its_own_instructions() -> None:
    line = "v_cvt_pk_bf16_f32 v0, v1, v2\n"
    assert len(assemble(line, "gfx950").code) >= 8
    with pytest.raises(AssemblerError, match="not supported on this GPU"):
        assemble(line, "gfx942")


def test_refused_text_is_told_at_the_source_line() -> None:
    text = "; one.py:3:5\ns_nop 0\n; /tmp/two.py:14:9\nv_mov_b32 v0, 1\nv_bogus v0, v1\nv_add_u32 v0, v1 ; two.py:15\n"
    with pytest.raises(AssemblerError) as caught:
        assemble(text, "gfx942")
    error = caught.value
    assert error.loc == Loc("/tmp/two.py", 14, 9)
    assert error.line == 5
    assert len(error.messages) == 2
    assert "line 5: invalid instruction\n    v_bogus v0, v1" in str(error)
    assert "line 6: too few operands for instruction" in str(error)


def test_places_passed_along_win() -> None:
    places = [Loc("a.py", 1), None, Loc("a.py", 7), None]
    with pytest.raises(AssemblerError) as caught:
        assemble("; b.py:9\ns_nop 0\ns_nop 0\nv_bogus\n", "gfx942", places)
    assert caught.value.loc == Loc("a.py", 7)
    assert nearest_loc("", 2, [None, None]) is None


def test_place_is_not_looked_for_beyond_the_function() -> None:
    assert nearest_loc("; a.py:1\n.type k,@function\nk:\ns_nop 0\n", 4) is None


def test_undefined_symbols_are_refused() -> None:
    with pytest.raises(AssemblerError, match="undefined label 'nowhere'"):
        assemble("s_branch nowhere\n", "gfx942")
    with pytest.raises(AssemblerError, match=r"does not define: table"):
        assemble("s_getpc_b64 s[0:1]\ns_add_u32 s0, s0, table@rel32@lo+4\n", "gfx942")


@pytest.mark.parametrize("name", ["sm_90a", "gfx9999"])
def test_other_targets_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="target"):
        assemble("s_nop 0\n", name)


def test_a_crash_of_llvm_is_an_error_and_the_next_text_works() -> None:
    assemble("s_nop 0\n", "gfx942")
    helper = llvm._helper
    assert helper is not None
    os.kill(helper._process.pid, signal.SIGKILL)
    helper._process.wait()
    with pytest.raises(llvm.LlvmCrash, match="signal 9"):
        assemble("s_nop 0\n", "gfx942")
    assert len(assemble("s_nop 0\n", "gfx942").code) >= 4


def test_threads_take_turns() -> None:
    sizes: list[int] = []

    def work(count: int) -> None:
        for _ in range(5):
            text = "k:\n" + "s_nop 0\n" * count + "e:\n.type k,@function\n.size k, e-k\n"
            sizes.append(len(assemble(text, "gfx942").code) - 4 * count)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 50, 300)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sizes == [0] * 15


def test_a_forked_process_has_its_own_helper() -> None:
    assemble("s_nop 0\n", "gfx942")
    before = llvm._helper
    pid = os.fork()
    if pid == 0:  # pragma: no cover (the child)
        good = False
        try:
            good = llvm._helper is None and len(assemble("s_nop 0\n", "gfx942").code) >= 4
            llvm._stop()
        finally:
            os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert llvm._helper is before
    assert len(assemble("s_nop 0\n", "gfx942").code) >= 4


def test_without_llvm_the_error_says_what_to_install() -> None:
    program = (
        "from mimw.codegen.amdgcn.binary import llvm\n"
        "assert llvm.find_llvm() is None and llvm.llvm_version() is None\n"
        "assert 'is no file' in llvm.why_no_llvm()\n"
        "llvm.assemble_text('s_nop 0', 'gfx942')\n"
    )
    environment = {**os.environ, "MIMW_LLVM": "/nonexistent/libLLVM.so"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        "error[no-assembler]: there is no assembler for AMD's targets: MIMW_LLVM=/nonexistent/libLLVM.so is no file"
        in done.stderr
    )
    assert "hint: pip install 'mimw[amd]'" in done.stderr and "a bug in mimw" not in done.stderr


def test_a_library_without_llvm_is_passed_over() -> None:
    """It is a shared library, but not an LLVM: the helper says what it lacks."""
    library = next(p for p in Path("/proc/self/maps").read_text().split() if "libc.so" in p)
    program = "from mimw.codegen.amdgcn.binary import llvm\nprint(llvm.find_llvm(), llvm.why_no_llvm())\n"
    environment = {**os.environ, "MIMW_LLVM": library}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("None ")
    assert "LLVMInitializeAMDGPUTargetInfo" in done.stdout


def test_the_helper_ends_with_its_parent() -> None:
    program = (
        "import os, signal\n"
        "from mimw.codegen.amdgcn.binary import llvm\n"
        "llvm.find_llvm()\n"
        "print(llvm._helper._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # The helper holds a copy of nothing of its parent's but stderr: once that ends, so has the helper.
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False, timeout=60)
    helper = int(done.stdout)
    deadline = 200
    while os.path.exists(f"/proc/{helper}") and deadline:
        if Path(f"/proc/{helper}/stat").read_text().split()[2] == "Z":
            break
        deadline -= 1
        signal.sigtimedwait([], 0.05)
    assert deadline


def test_stamp_of_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It names the library without loading it, and sees another one in its place."""
    library = tmp_path / "libLLVM.so"
    monkeypatch.setenv("MIMW_LLVM", str(library))
    assert llvm.library_stamp() == "none"
    library.write_bytes(b"no library")
    first = llvm.library_stamp()
    library.write_bytes(b"another one")
    assert str(library) in first
    assert llvm.library_stamp() != first


def test_candidates_are_the_packages_then_the_systems_newest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MIMW_LLVM", raising=False)
    package, system = tmp_path / "rocm" / "llvm", tmp_path / "lib"
    for folder, names in (
        (package, ["librocmllvm.so"]),
        (system, ["libLLVM.so.22.1", "libLLVM.so.21.1", "libLLVM-14.so.1", "libLLVM-19.so.1", "libLLVM-C.txt"]),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_bytes(b"")
    (system / "libLLVM-22.so").symlink_to("libLLVM.so.22.1")
    monkeypatch.setattr(llvm, "_SYSTEM_FOLDERS", (str(system),))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "rocm", raising=False)
    found = [os.path.realpath(p) for p in llvm.candidates()]
    assert found == [str(package / "librocmllvm.so"), str(system / "libLLVM.so.22.1"), str(system / "libLLVM.so.21.1")]
