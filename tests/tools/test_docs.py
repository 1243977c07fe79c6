"""The documents hold: files that they name exist, commands run, dumps are what the commands print, Python blocks run.

A dump in a document is cut by hand: a line that is only ``...`` stands for any lines, ``...`` inside a line for any text. Numbers of registers, values
and layouts may differ.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from mimw.diagnostics import CompilationError
from mimw.sim.errors import SimulationError
from mimw.tools.main import main

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOUR = ROOT / "docs" / "tour.md"


def blocks(document: Path) -> list[tuple[str, str]]:
    """(language, text) of each fenced block."""
    return BLOCK.findall(document.read_text())


def commands(text: str) -> list[str]:
    """The `mimw` commands of a block, continued lines joined."""
    joined = text.replace("\\\n", " ")
    return [line.partition(" # ")[0].strip() for line in joined.splitlines() if line.startswith("mimw ")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_named_files_exist(document: Path) -> None:
    prose = BLOCK.sub("", document.read_text())
    named = re.findall(r"`(\w[\w./-]*/[\w./-]*)`", prose)
    linked = re.findall(r"\]\(([^)#]+)\)", re.sub(r"`[^`]*`", "", prose))
    missing = [n for n in named if not (ROOT / n).exists() and not (ROOT / "mimw" / n).exists()]
    missing += [n for n in linked if "://" not in n and not (document.parent / n).exists()]
    assert missing == []


def test_the_readmes_tree_is_there() -> None:
    tree = next(text for _, text in blocks(ROOT / "README.md") if text.startswith("mimw/"))
    for line in tree.splitlines():
        for name in re.split(r"\s{2,}", line)[0].removeprefix("mimw/").split():
            assert (ROOT / "mimw" / name).exists(), name


README_COMMANDS = [c for _, text in blocks(ROOT / "README.md") for c in commands(text)]


@pytest.mark.parametrize("command", README_COMMANDS, ids=lambda c: " ".join(c.split()[:2]))
def test_the_readmes_commands_run(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out


def test_the_readmes_stages_are_the_commands() -> None:
    assert any(c.startswith("mimw inspect ") for c in README_COMMANDS)


def test_the_readmes_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"(?:^|`)make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert "demo" in targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def pattern(line: str) -> re.Pattern[str]:
    """A line of a document against a line of a dump: ``...`` stands for any text, numbers of names are left open."""
    parts = [re.escape(part) for part in line.strip().split("...")]
    text = re.sub(r"(%[A-Za-z_]*|\\\#[ls])\d+", r"\1\\d+", ".*".join(parts))
    return re.compile(text)


def unmatched(shown: str, dump: str) -> str | None:
    """The first line of `shown` that `dump` does not have where it should stand; None when all is well."""
    actual = [line.strip() for line in dump.splitlines() if line.strip()]
    at, free = 0, False
    for line in shown.splitlines():
        if not line.strip():
            continue
        if line.strip() == "...":
            free = True
            continue
        wanted = pattern(line)
        while free and at < len(actual) and not wanted.fullmatch(actual[at]):
            at += 1
        if at >= len(actual) or not wanted.fullmatch(actual[at]):
            return line
        at, free = at + 1, False
    return None


def dumps() -> list[tuple[str, str]]:
    """(command, dump) of the tour, in order; a dump without a command of its own belongs to the one before."""
    out: list[tuple[str, str]] = []
    command = ""
    for language, text in blocks(TOUR):
        if language == "sh":
            (command,) = commands(text)
        elif language == "text":
            out.append((command, text))
    return out


@pytest.mark.parametrize(("command", "shown"), dumps(), ids=[f"{i}-{c.split()[2]}" for i, (c, _) in enumerate(dumps())])
def test_the_tours_dumps_are_real(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)[1:]) == 0
    assert unmatched(shown, capsys.readouterr().out) is None, f"run {command} and renew the dump in docs/tour.md"


def test_a_stale_dump_is_found() -> None:
    command, shown = dumps()[0]
    assert command.startswith("mimw inspect")
    assert unmatched(shown.replace("arith.mul", "arith.div"), shown) is not None
    assert unmatched("a\nc\n", "a\nb\nc\n") == "c"
    assert unmatched("a\n...\nc %7\n", "a\nb\nc %12\n") is None


PYTHON = [text for language, text in blocks(TOUR) if language == "python" and "import" in text]


@pytest.mark.parametrize("text", PYTHON, ids=range(len(PYTHON)))
def test_the_tours_python_runs(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert "assert" in text
    exec(compile(text, str(TOUR), "exec"), {})


def test_the_tours_kernel_is_the_examples() -> None:
    kernel = next(text for language, text in blocks(TOUR) if language == "python")
    assert kernel in (ROOT / "examples" / "01_vector_add.py").read_text()


MIMW = ROOT / "docs" / "mimw.md"
KERNEL, RUN = (text for language, text in blocks(MIMW)[:2] if language == "python")
EXCERPTS = [text for language, text in blocks(MIMW)[2:] if language == "python"]


def faults() -> list[tuple[str, str]]:
    """(change, message) of the MIMW document: a diff, and the text that follows it."""
    pairs = zip(blocks(MIMW), blocks(MIMW)[1:], strict=False)
    return [(change, shown) for (language, change), (_, shown) in pairs if language == "diff"]


def run_the_document(kernel: str, run: str, folder: Path) -> None:
    """The kernel of the MIMW document, in a file, where its source is looked for, and all that the document does with it."""
    file = folder / "doubled.py"
    file.write_text(kernel)
    namespace: dict[str, Any] = {}
    exec(compile(kernel, str(file), "exec"), namespace)
    exec(compile(run, str(MIMW), "exec"), namespace)


def test_the_mimw_documents_kernel_runs(tmp_path: Path) -> None:
    assert "assert (y == 2 * x).all()" in RUN
    run_the_document(KERNEL, RUN, tmp_path)


FAULTS = faults()


@pytest.mark.parametrize(("change", "shown"), FAULTS, ids=range(len(FAULTS)))
def test_the_mimw_documents_messages_are_real(change: str, shown: str, tmp_path: Path) -> None:
    name, *lines = change.splitlines()
    name = name.removeprefix("--- ")
    before, after = ("\n".join(x[1:] for x in lines if x[0] == sign) for sign in "-+")
    assert "error[" in shown or "race" in shown
    parts = {"doubled.py": KERNEL, "how it is run": RUN}
    assert parts[name].count(before) == 1
    parts[name] = parts[name].replace(before, after)
    with pytest.raises((CompilationError, SimulationError)) as caught:
        run_the_document(parts["doubled.py"], parts["how it is run"], tmp_path)
    message = str(caught.value).replace(f"{tmp_path}/", "")
    assert unmatched(shown, message) is None, message


@pytest.mark.parametrize("text", EXCERPTS, ids=range(len(EXCERPTS)))
def test_the_mimw_documents_excerpts_are_the_examples(text: str) -> None:
    name, _, excerpt = text.partition("\n")
    assert excerpt in (ROOT / name.removeprefix("# ")).read_text()


def test_the_mimw_document_is_tested_whole() -> None:
    kinds = [language for language, _ in blocks(MIMW)]
    assert kinds == ["python"] * (2 + len(EXCERPTS)) + ["diff", "text"] * len(FAULTS)
    assert len(MIMW.read_text().splitlines()) < 300
