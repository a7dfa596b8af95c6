"""Every python and console block of README.md and docs/*.md runs, and prints what it shows.

A console block holds commands (``$ ...``, ``# exits N`` after one that does not end with 0) and
their output. A block without any output is only run; a last line ``...`` leaves the rest out. A
block opened as ``python needs NAME`` runs where that package is installed. ``WAVEPLAN_UPDATE=1``
writes outputs anew.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Written by other tests' generators, without blocks that run.
GENERATED = ("rules.md", "accuracy.md")
BLOCK = re.compile(r"^```(python|console)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UPDATE = os.environ.get("WAVEPLAN_UPDATE") == "1"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    kind: str
    needs: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(kind: str) -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            if match[1] == kind:
                line = text[: match.start()].count("\n") + 1
                needs = match[2].strip().removeprefix("needs").strip()
                found.append(Block(page, line, kind, needs, match[3]))
    return found


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name."""
    folder = tmp_path_factory.mktemp("desk")
    examples = ROOT / "examples"
    shutil.copytree(examples, folder / "examples")
    shutil.copy(examples / "rollouts.jsonl", folder)
    shutil.copy(examples / "config.json", folder)
    (folder / "tests" / "data").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "data" / "tau_retail_open.npz", folder / "tests" / "data")
    shutil.copy(ROOT / "tests" / "data" / "peaks.json", folder / "tests" / "data")
    shutil.copy(ROOT / "tests" / "data" / "peaks.json", folder)
    from waveplan import Sequences

    made = Sequences.load(folder / "rollouts.jsonl")
    arrays: dict[str, Any] = {"tokens": made.tokens, "offsets": made.offsets, **made.columns}
    np.savez(folder / "rollouts.npz", **arrays)
    return folder


def test_the_pages_have_blocks() -> None:
    pages = {block.page.name for kind in ("python", "console") for block in blocks(kind)}
    expected = {"README.md", "getting-started.md", "sizing.md", "trainer.md", "json.md"}
    assert expected <= pages
    assert len(blocks("console")) >= 12
    assert len(blocks("python")) >= 8


def _normal(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    return [
        re.sub(r"planned in [0-9.,]+ \w+", "planned in TIME", line.rstrip())
        for line in text.rstrip("\n").split("\n")
    ]


def _run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{Path(sys.executable).parent}"
    environment = {
        **os.environ,
        "COLUMNS": "100",
        "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
    }
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
    )


@pytest.mark.parametrize("block", blocks("console"), ids=lambda block: block.name)
def test_console(block: Block, desk: Path) -> None:
    lines, at = block.text.rstrip("\n").split("\n"), 0
    assert lines[0].startswith("$ "), "a console block begins with a command"
    made: list[str] = []
    while at < len(lines):
        command, _, comment = lines[at].removeprefix("$ ").partition("  # exits ")
        shown = lines[at]
        at += 1
        expected = []
        while at < len(lines) and not lines[at].startswith("$ "):
            expected.append(lines[at])
            at += 1
        done = _run(command, desk)
        # README's commands name the reader's own files: refusals are as good a result there.
        allowed = {0, 1} if block.page.name == "README.md" else {int(comment or 0)}
        assert done.returncode in allowed, done.stdout
        assert "Traceback" not in done.stdout
        made.append(shown)
        printed = _normal(done.stdout)
        if expected and expected[-1] == "...":
            kept = expected[:-1]
            printed = [*printed[: len(kept)], "..."]
            assert (
                UPDATE
                or printed[:-1] == _normal("\n".join(kept) + "\n" if kept else "")[: len(kept)]
            )
        elif expected:
            assert UPDATE or printed == _normal("\n".join(expected))
        if expected or (UPDATE and block.page.name != "README.md"):
            made += [line.replace("planned in TIME", _time(done.stdout)) for line in printed]
    if UPDATE:
        text = block.page.read_text(encoding="utf-8")
        new = "\n".join(made) + "\n"
        block.page.write_text(text.replace(block.text, new, 1), encoding="utf-8")


def _time(text: str) -> str:
    found = re.search(r"planned in [0-9.,]+ \w+", text)
    return found[0] if found else ""


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python(
    page: Path,
    desk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(desk)
    scope: dict[str, Any] = {"__name__": "__main__"}
    left_out = []
    for block in blocks("python"):
        if block.page != page:
            continue
        if block.needs and not _installed(block.needs):
            left_out.append(f"{block.name} needs {block.needs}")
            continue
        code = "\n" * block.line + block.text
        exec(compile(code, str(page), "exec"), scope)
    capsys.readouterr()
    if left_out:
        pytest.skip(f"left out, the rest ran: {'; '.join(left_out)}")


def test_links_lead_somewhere() -> None:
    others = (ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG"))
    for page in [*PAGES, *others]:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)", text):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_pictures_are_fresh(tmp_path: Path) -> None:
    folder = ROOT / "docs" / "pictures"
    target = folder if UPDATE else tmp_path
    subprocess.run([sys.executable, str(folder / "make.py"), str(target)], check=True)
    names = sorted(path.name for path in folder.glob("*.svg"))
    assert names == sorted(path.name for path in target.glob("*.svg"))
    for name in names:
        assert (folder / name).read_bytes() == (target / name).read_bytes(), name
        assert (folder / name).stat().st_size < 40_000


def test_every_command_is_in_the_page_of_json() -> None:
    text = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    for command in (
        "plan",
        "demo",
        "price",
        "sweep",
        "inspect",
        "rules",
        "record",
        "check",
        "bench",
    ):
        assert re.search(rf"\b{command}\b", text)


def test_the_glossary_has_every_heading(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from waveplan.cli import main
    from waveplan.report.table import Table

    headings: set[str] = set()
    made = Table.__post_init__

    def collect(table: Table, given: Any) -> None:
        headings.update(table.columns)
        made(table, given)

    monkeypatch.setattr(Table, "__post_init__", collect)
    monkeypatch.chdir(desk)
    job = ["--model", "qwen3.6-35b-a3b", "--dp", "2"]
    assert main(["plan", "rollouts.jsonl", *job, "--cp", "2", "--available", "9GiB"]) == 0
    assert main(["price", "--tokens", "4000", *job, "--budget", "141GB"]) == 0
    assert main(["sweep", "rollouts.jsonl", *job, "--available", "9GiB", "--jobs", "1"]) == 0
    assert main(["rules", *job]) == 0
    assert main(["check", "peaks.json"]) == 0
    page = (ROOT / "docs" / "words.md").read_text(encoding="utf-8")
    words = {word for bold in re.findall(r"\*\*(.+?)\*\*", page) for word in bold.split(", ")}
    assert len(headings) > 30
    assert headings - words == {"bytes", ""}


def test_the_example_script_plans_every_request() -> None:
    script = ROOT / "examples" / "plan_waves.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    widths = [int(found) for found in re.findall(r"wave \d+: (\d+) requests", done.stdout)]
    assert len(widths) > 1
    assert sum(widths) == (ROOT / "examples" / "rollouts.jsonl").read_text().count("\n")
    assert "rank 1 owns packed tokens" in done.stdout
