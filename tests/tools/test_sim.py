"""`mimw sim`: programs that are right, programs that are wrong, what is said of them, replay, and the files that it writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from mimw.tools.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(p.name for p in EXAMPLES.glob("0*.py"))

PROGRAM = """
import sys

import numpy as np

import mimw
import mimw.language as ml


@mimw.kernel
def doubled(x, y, N, BM: ml.constexpr, BN: ml.constexpr, STAGES: ml.constexpr):
    ring = ml.local_alloc((BM, BN), ml.float32, STAGES)
    full = ml.alloc_barriers(STAGES, 1)
    empty = ml.alloc_barriers(STAGES, 1)
    m = ml.program_id(0) * BM
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(ml.cdiv(N, BN)):
                slot, phase = i % STAGES, (i // STAGES) & 1
                ml.barrier_wait(empty[slot], phase ^ 1)
                ml.barrier_expect_bytes(full[slot], BM * BN * 4)
                ml.async_descriptor_load(x, ring[slot], [m, i * BN], full[slot])
        with ml.async_task(num_warps=4, name="consumer"):
            rows = m + ml.arange(0, BM)
            for i in range(ml.cdiv(N, BN)):
                slot, phase = i % STAGES, (i // STAGES) & 1
                ml.barrier_wait(full[slot], phase)
                tile = ml.local_load(ring[slot])
                ml.barrier_arrive(empty[slot])
                columns = i * BN + ml.arange(0, BN)
                ml.store(y + rows[:, None] * N + columns[None, :], 2 * tile, mask=columns[None, :] < N)


@mimw.kernel
def same_place(y):
    ml.store(y + ml.arange(0, 16), ml.program_id(0).to(ml.float32))


x, y = np.ones((64, 400), np.float32), np.zeros((64, 400), np.float32)
doubled[(2,)](mimw.TensorDescriptor.from_tensor(x, [32, 64]), y, 400, BM=32, BN=64, STAGES=3)
assert (y == 2 * x).all()
if "twice" in sys.argv:
    same_place[(2,)](y)
"""
EARLY = ("tile = ml.local_load(ring[slot])\n                ml.barrier_arrive(empty[slot])",
         "ml.barrier_arrive(empty[slot])\n                tile = ml.local_load(ring[slot])")  # fmt: skip
STUCK = ("ml.barrier_wait(empty[slot], phase ^ 1)", "ml.barrier_wait(empty[slot], phase)")


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the program, changed, under options: (status, what was said, the JSON)."""

    def go(change: tuple[str, str] = ("", ""), *options: str, kernel: str = "", after: tuple[str, ...] = ()) -> Any:
        assert change[0] in PROGRAM
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.replace(*change) if change[0] else PROGRAM)
        out = tmp_path / "out.json"
        status = main(["sim", f"{path}{kernel}", *options, "--json", str(out), *(("--", *after) if after else ())])
        return status, capsys.readouterr().out, json.loads(out.read_text())

    return go


def test_a_right_program(run: Any) -> None:
    status, said, found = run(("", ""), "--check", "--schedules", "4")
    assert status == 0 and "doubled (1); 4 schedules each: 0 errors, 0 warnings" in said
    assert found["seeds"] == [0, 1, 2, 3] and found["findings"] == []


def line(text: str, path: Path | None = None) -> int:
    return next(i + 1 for i, source in enumerate(PROGRAM.splitlines()) if text in source)


def test_a_race_is_told_with_both_lines_and_how_to_see_it_again(run: Any) -> None:
    status, said, found = run(EARLY)
    assert status == 1
    for part in (
        "error[race]: ring[0] is written here and read by task 'consumer' of CTA (0, 0, 0)",
        "ml.async_descriptor_load(x, ring[slot], [m, i * BN], full[slot])\n    ^^^^^",
        "[program (0, 0, 0), task 'default', i = 3, after phase 0 of empty[0]]",
        "note: task 'consumer' of CTA (0, 0, 0) reads it here, i = 0, after phase 0 of full[0]",
        "hint: let the one that comes first arrive on a barrier",
        "found under seed 0; again: mimw sim ",
    ):
        assert part in said
    (finding,) = found["findings"]
    assert (finding["code"], finding["kernel"], finding["task"]) == ("race", "doubled", "default")
    assert finding["location"]["line"] == line("ml.async_descriptor_load")
    assert finding["location"]["source"].startswith("ml.async_descriptor_load(x, ring[slot]")
    assert finding["notes"][0]["location"]["line"] == line("tile = ml.local_load") + 1
    assert finding["slot"] == "ring[0]" and finding["iteration"] == [{"name": "i", "value": 3}]
    assert finding["after"] == {"barrier": "empty[0]", "phase": 0}
    assert finding["other"]["after"] == {"barrier": "full[0]", "phase": 0}


@pytest.mark.parametrize("seed", [0, 5, 6])
def test_a_seed_shows_the_same_again(run: Any, seed: int) -> None:
    first = run(EARLY, "--seed", str(seed))
    assert first[0] == 1 and first == run(EARLY, "--seed", str(seed))
    assert {f["seed"] for f in first[2]["findings"]} == {seed}


def test_a_deadlock_is_a_graph_of_who_waits_for_whom(run: Any) -> None:
    status, said, found = run(STUCK)
    assert status == 1 and "error[deadlock]" in said
    (finding,) = found["findings"]
    edges = {edge["task"].split("'")[1]: edge for edge in finding["waits"]}
    assert edges["default"]["barrier"] == "empty[0]" and edges["default"]["arrivals_from"] == ["consumer"]
    assert edges["consumer"]["barrier"] == "full[0]" and edges["consumer"]["arrivals_from"] == ["default"]
    assert (edges["default"]["arrivals"], edges["default"]["arrive_count"], edges["default"]["parity"]) == (0, 1, 0)
    assert edges["default"]["iteration"] == [{"name": "i", "value": 0}]


def test_what_a_compile_refuses_is_told_by_a_check(run: Any) -> None:
    status, said, found = run(STUCK, "--check")
    assert status == 1 and "every task that is not done waits" in said and "0 warnings" in said
    assert "error[deadlock]" in found["compilation_error"]


def test_a_likely_fault_is_a_warning_of_a_check(run: Any) -> None:
    odd = ("async_descriptor_load(x, ring[slot]", "async_descriptor_load(x, ring[(i + 1) % STAGES]")
    status, said, found = run(odd, "--check", "--schedules", "1")
    assert status == 1 and "warning[slot-mismatch]" in said and "# mimw: ignore[slot-mismatch] at this line" in said
    assert found["findings"][0]["location"]["line"] == line("ml.async_descriptor_load")
    silenced = (odd[0], odd[1])
    text = PROGRAM.replace(*silenced).replace(
        "full[slot])\n        with", "full[slot])  # mimw: ignore[slot-mismatch]\n        with"
    )
    status, said, _ = run((PROGRAM, text), "--check", "--schedules", "1")
    assert "warning[slot-mismatch]" not in said


def test_ctas_that_write_the_same_place_are_a_warning_of_a_check(run: Any) -> None:
    status, said, found = run(("", ""), "--check", after=("twice",))
    assert status == 1 and "warning[global-race]: y is written here and written by the kernel of CTA (0, 0, 0)" in said
    assert {f["code"] for f in found["findings"]} == {"global-race"}
    assert run(("", ""), after=("twice",))[0] == 0


def test_one_kernel_of_several(run: Any) -> None:
    status, said, found = run(("", ""), "--check", kernel=":doubled", after=("twice",))
    assert status == 0 and "doubled (1)" in said
    assert [launch["kernel"] for launch in found["launches"]] == ["doubled"]
    status, said, _ = run(("", ""), kernel=":nothing")
    assert status == 1 and "error[sim-kernel]" in said and "doubled" in said


def test_a_program_that_fails_by_itself(run: Any) -> None:
    status, _, found = run(("assert (y == 2 * x)", "assert (y == 3 * x)"))
    assert status == 1 and found["findings"] == []
    assert run(('if "twice" in sys.argv', "sys.exit(0)\nif True"))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["sim", "nowhere.py"], "sim-file"),
        (["sim", str(EXAMPLES / NAMES[0]), "--timeline", "out.png"], "sim-timeline"),
        (["sim", str(EXAMPLES / NAMES[0]), "--timeline", "out.svg", "--target", "sm_1"], "inspect-target"),
    ],
)
def test_wrong_command_lines(arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    assert f"error[{code}]" in capsys.readouterr().err


def test_a_timeline_in_chromes_format(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "timeline.json"
    assert run(("", ""), "--timeline", str(out))[0] == 0
    events = json.loads(out.read_text())["traceEvents"]
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {f"doubled, launch 0, CTA ({i}, 0, 0)" for i in range(2)}
    assert {"task 'default'", "task 'consumer'", "TMA load"} <= set(lanes.values())
    done = [e for e in events if e["ph"] == "X"]
    assert all(e["dur"] >= 0 and (e["pid"], e["tid"]) in lanes for e in done)
    loads = [e for e in done if e["cat"] == "engine"]
    assert len(loads) == 2 * 7 and all(e["args"]["line"] == line("ml.async_descriptor_load") for e in loads)
    waits = [e for e in done if e["cat"] == "wait" and lanes[e["pid"], e["tid"]] == "task 'consumer'"]
    assert "phase 0 (parity 0) of full[0]" in waits[0]["args"]["what"]
    assert waits[0]["args"]["source"] == "ml.barrier_wait(full[slot], phase)"


def test_a_timeline_as_a_picture(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "timeline.svg"
    assert run(("", ""), "--timeline", str(out))[0] == 0
    root = ElementTree.fromstring(out.read_text())
    space = "{http://www.w3.org/2000/svg}"
    texts = [t.text for t in root.iter(f"{space}text")]
    assert "task 'consumer'" in texts and "TMA load" in texts and "cycles" in texts
    boxes = [r for r in root.iter(f"{space}rect") if r.find(f"{space}title") is not None]
    width = float(root.attrib["width"])
    assert len(boxes) > 50 and all(float(b.attrib["x"]) + float(b.attrib["width"]) <= width for b in boxes)


def test_the_documents_report_is_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (EXAMPLES.parent / "docs" / "simulators.md").read_text()
    program, report = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[0] for kind in ("python", "text"))
    monkeypatch.chdir(tmp_path)
    Path("ring.py").write_text(program)
    assert main(["sim", "ring.py", "--check"]) == 1
    assert capsys.readouterr().out.strip() == report.strip()


def test_json_on_stdout_is_alone_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(EXAMPLES / NAMES[0]), "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["findings"] == [] and "mimw sim: add (1)" in captured.err


def checked(name: str, schedules: int) -> int:
    return main(["sim", str(EXAMPLES / name), "--check", "--schedules", str(schedules)])


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_are_right(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(name, 5) == 0, capsys.readouterr().out
    assert ": 0 errors, 0 warnings" in capsys.readouterr().out


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_the_examples_are_right_under_many_schedules(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(name, 200) == 0, capsys.readouterr().out
