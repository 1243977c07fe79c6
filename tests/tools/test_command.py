"""The `mimw` command: each subcommand's output and its errors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import mimw
from mimw.tools import reference
from mimw.tools.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
ADD = f"{EXAMPLES / '01_vector_add.py'}:add"
MATMUL = f"{EXAMPLES / '03_matmul.py'}:matmul_kernel"
MATMUL_SIGNATURE = "*bf16:16,*bf16:16,*bf16:16,i32:16,i32:16,i32:16,i32:16,1,i32:16,1,i32:16,1,128,128,64,8"


def test_doctor_says_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for word in ("Python", "numpy", "sm_90a", "ptxas", "CUDA devices"):
        assert word in out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"mimw {mimw.__version__}\n"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("x = 1\ndef f(:\n", 2, "SyntaxError: invalid syntax"),
        ("\nimport no_such_thing\n", 2, "ModuleNotFoundError"),
    ],
)
def test_inspect_of_a_file_that_fails(
    text: str, line: int, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    assert main(["inspect", f"{path}:f"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"{path}:{line}:") and "error[inspect-file]" in said and what in said
    assert "Traceback" not in said


@pytest.mark.parametrize("option", ["--json", "--timeline"])
def test_sim_is_told_to_write_where_there_is_no_folder(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(EXAMPLES / "01_vector_add.py"), option, "no_such_folder/out.json"]) == 1
    said = capsys.readouterr()
    assert "error[sim-file]: 'no_such_folder/out.json' cannot be written" in said.err and "vector_add" not in said.out


def test_demo_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert out.count(" right") >= 3
    assert out.rstrip().endswith("all right")


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("tile", ["memory.load", "arith.add", "kernel @add"]),
        ("layouts", ["layout<1024", "memory.load"]),
        ("ptx", [".target sm_80", "// x = ml.load(x_ptr + offsets, mask=mask)", "ld.global.v4.f32", ".loc 1 "]),
    ],
)
def test_inspect_shows_a_stage(stage: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    spec = "x_ptr=*f32:16,y_ptr=*f32:16,out_ptr=*f32:16,n=i32:16,BLOCK=1024"
    assert main(["inspect", ADD, "--signature", spec, "--target", "sm_80", "--stage", stage]) == 0
    out = capsys.readouterr().out
    for word in words:
        assert word in out
    assert "\x1b[" not in out  # no colour where there is no terminal


def test_inspect_takes_types_in_order_and_colours_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", MATMUL, "--signature", MATMUL_SIGNATURE, "--stage", "layouts", "--color", "always"]) == 0
    out = capsys.readouterr().out
    assert "\x1b[" in out
    assert "pipelined: 3 slots" in out


def test_inspect_says_why_a_loop_is_not_pipelined(capsys: pytest.CaptureFixture[str]) -> None:
    spec = MATMUL_SIGNATURE.replace("i32:16", "i32")
    assert main(["inspect", MATMUL, "--signature", spec, "--stage", "tile"]) == 0
    assert "not pipelined: the load in line" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["inspect", "nowhere.py:add"], "inspect-file"),
        (["inspect", ADD.replace(":add", ":subtract")], "inspect-kernel"),
        (["inspect", ADD, "--target", "sm_12"], "inspect-target"),
        (["inspect", ADD, "--signature", "q=*f32,*f32,*f32,i32,1024,7,8"], "inspect-signature"),
        (["inspect", ADD, "--signature", "x_ptr=*f99"], "launch-signature"),
        (["inspect", ADD, "--signature", "x_ptr=*f32"], "launch-signature"),
    ],
)
def test_wrong_command_lines_are_told(arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert f"error[{code}]" in captured.err
    assert "Traceback" not in captured.err


def test_generated_documents_are_not_stale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["reference", "--check"])
    assert reference.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["inspect", ADD.removesuffix(":add")], "its kernels are add"),
        (["inspect", "nowhere.py"], "there is no file 'nowhere.py'"),
        (["inspect", ADD], "write --signature with an entry for each of x_ptr, y_ptr, out_ptr, n, BLOCK"),
    ],
)
def test_wrong_command_lines_are_told_what_to_write(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert text in error
    assert "main.py" not in error
    assert __file__ not in error
