"""The report page: its data, its text, and how Chromium shows it at two widths; its pictures.

Tests marked ``chromium`` need a browser of that name. They are skipped without one, and fail
instead where WAVEPLAN_CHROMIUM=1 says that there must be one.
"""

from __future__ import annotations

import functools
import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import HERE

from waveplan.budget import format_bytes
from waveplan.cli import main
from waveplan.desk.jobs import Job
from waveplan.planner import Planner, Waves
from waveplan.report.data import collect, rank_prices
from waveplan.report.html import page as page_of
from waveplan.report.summary import summary
from waveplan.sequences.requests import Requests
from waveplan.sequences.sequences import Sequences
from waveplan.wave import Wave

MODEL = "qwen3.6-35b-a3b"


def shared(sequences: int, prefix: int, own: int, seed: int = 1) -> Requests:
    """Sequences of which groups of four share a prefix."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(sequences):
        if i % 4 == 0:
            head = rng.integers(0, 50_000, prefix)
        made.append(np.concatenate([head, rng.integers(0, 50_000, own)]))
    return Requests(Sequences.from_any(made))


def chain(levels: int) -> Requests:
    """Sequences of which each goes on where the one before ends: a deep tree."""
    tokens = np.random.default_rng(2).integers(0, 50_000, levels * 40)
    return Requests(Sequences.from_any([tokens[: (i + 1) * 40] for i in range(levels)]))


def planned(job: Job, requests: Requests) -> tuple[Planner, list[Wave], Waves]:
    planner = job.planner()
    run = planner.waves(requests, on_refusal="skip")
    return planner, list(run), run


CASES: dict[str, tuple[Job, Requests]] = {
    "one rank": (Job(model=MODEL, available="4GiB"), shared(24, 200, 60)),
    "eight ranks": (Job(model=MODEL, cp=8, available="9GiB"), shared(200, 800, 150)),
    "wide tree": (Job(model="qwen3-0.6b", cp=2, available="20GiB"), shared(1200, 20, 8)),
    "deep tree": (Job(model="qwen3-0.6b", cp=2, available="20GiB"), chain(60)),
    "no sharing": (Job(model=MODEL, cp=2, available="9GiB"), shared(8, 0, 900)),
    "hundreds of waves": (Job(model="qwen3-0.6b", available="240MiB"), shared(300, 0, 50)),
    "no wave": (Job(model=MODEL, available="1MiB"), shared(40, 10, 10)),
    "doubtful rules": (Job(model=MODEL, tp=2, cp=2, available="9GiB"), shared(16, 300, 90)),
    "shares": (Job(model=MODEL, dp=2, cp=2, available="5GiB"), shared(60, 300, 90)),
}


@functools.cache
def case(name: str) -> dict[str, Any]:
    job, requests = CASES[name]
    planner, waves, run = planned(job, requests)
    return collect(job, planner, waves, run)


def test_groups_refused_are_named_as_groups() -> None:
    long = [np.arange(40_000), np.arange(9, 50)]
    requests = Requests(Sequences.from_any([np.arange(30), *long]), groups=[1, 2])
    job = Job(model=MODEL, dp=2, cp=2, available="4GiB")
    planner, waves, run = planned(job, requests)
    text = summary(waves, run, 0.0)[-1]
    assert text.startswith("refused: 1 of 2 groups, ")
    assert "  group 1: 40,041 tokens, requires" in text
    (refused,) = collect(job, planner, waves, run)["refused"]
    assert (refused["requests"], refused["tokens"]) == ([1, 2], 40_041)


def test_text_json_page_and_plots_show_the_same_numbers_of_all_shares(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    sequences, page = tmp_path / "sequences.jsonl", tmp_path / "page.html"
    lines = [json.dumps({"tokens": list(range(9 * i, 9 * i + 40 * i + 50))}) for i in range(30)]
    sequences.write_text("\n".join(lines))
    argv = ["plan", str(sequences), "--model", MODEL, "--dp", "2", "--cp", "2"]
    main([*argv, "--available", "4GiB", "--html", str(page), "--json"])
    out, err = capsys.readouterr()
    waves = json.loads(out)["waves"]
    head, _, *rows = [re.split(r"  +", line.strip()) for line in err.split("\n\n")[1].split("\n")]
    text = [dict(zip(head, row, strict=True)) for row in rows]
    embedded = re.search(r'id="waveplan-data">(.*?)</script>', page.read_text())
    assert embedded
    drawn = json.loads(embedded[1])["waves"]  # what the plots draw, too
    table = re.search(r"<thead><tr>(.*?)</table>", page.read_text())
    assert table
    cell = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>")
    names, *cells = [cell.findall(row) for row in table[1].split("<tr>")]
    assert len(waves) == len(text) == len(drawn) == len(cells) > 1
    for wave, line, shown, row in zip(waves, text, drawn, cells, strict=True):
        shares = wave["shares"]
        plans = [share["plan"] for share in shares]
        tokens = [plan["packed_tokens"] for plan in plans]
        assert wave["packed_tokens"] == sum(tokens)
        assert wave["logical_tokens"] == sum(plan["logical_tokens"] for plan in plans)
        assert wave["requests"] == sum(len(share["indices"]) for share in shares)
        assert wave["required"] == max(share["required"] for share in shares)
        assert wave["plan"] == plans[wave["dp_rank"]]
        assert wave["dp_tokens"] == max(tokens) * 2 / sum(tokens)
        assert {name: wave[name] for name in shown.keys() & wave.keys() - {"stopped"}}.items() <= (
            shown.items()
        )
        written = {
            "requests": f"{wave['requests']:,}",
            "tokens": f"{wave['logical_tokens']:,}",
            "packed": f"{wave['packed_tokens']:,}",
            "required": format_bytes(wave["required"]),
            "busiest": f"{wave['busiest']:,}",
            "DP rank": f"{wave['dp_rank']}",
            "DP tokens": f"{wave['dp_tokens']:.2f}",
            "DP time": f"{wave['dp_time']:.2f}",
            "not wider because": shown["stopped"],
        }
        assert written.items() <= line.items()
        assert written.items() <= dict(zip(names, row, strict=True)).items()


def test_cases_are_what_they_are_called() -> None:
    assert len(case("hundreds of waves")["waves"]) > 200
    assert case("no wave")["waves"] == []
    assert len(case("no wave")["refused"]) == 40
    assert len(case("eight ranks")["tightest"]["ranks"]) == 8
    assert max(node["depth"] for node in case("deep tree")["tree"]["nodes"]) >= 50
    assert case("doubtful rules")["doubtful"]
    assert all(node["depth"] == 0 for node in case("no sharing")["tree"]["nodes"])


@pytest.mark.parametrize("name", CASES)
def test_bars_add_up_and_the_busiest_rank_is_the_price(name: str) -> None:
    data = case(name)
    for wave in data["waves"]:
        assert wave["required"] <= data["available"]
    if data["tightest"] is None:
        return
    for rank in data["tightest"]["ranks"]:
        assert sum(value for _, value in rank["terms"]) == rank["required"]
    job, requests = CASES[name]
    _, waves, _ = planned(job, requests)
    tightest = max(waves, key=lambda wave: wave.required)
    prices = [price.required for price in rank_prices(tightest.plan)]
    assert max(prices) == tightest.plan.price.required


@pytest.mark.parametrize("name", CASES)
def test_boxes_of_the_tree_lie_inside_their_parents(name: str) -> None:
    nodes = case(name)["tree"]["nodes"]
    for node in nodes:
        assert node["left"] >= -1e-9
        assert node["left"] + node["width"] <= 1 + 1e-9
        if node["depth"]:
            above = [
                other
                for other in nodes
                if other["depth"] == node["depth"] - 1
                and other["left"] <= node["left"] + 1e-9
                and node["left"] + node["width"] <= other["left"] + other["width"] + 1e-9
            ]
            assert len(above) == 1


def test_attention_has_every_rank_and_fetch() -> None:
    attention = case("eight ranks")["attention"]
    assert [rank["rank"] for rank in attention["ranks"]] == list(range(8))
    assert attention["stages"][0] == "own keys"
    assert all(len(rank["stage_ms"]) == len(attention["stages"]) for rank in attention["ranks"])
    assert case("one rank")["attention"] is None


def test_labels_cannot_become_markup(tmp_path: Path) -> None:
    data = {
        **case("doubtful rules"),
        "title": "<script>alert(1)</script>",
        "summary": "</script><b>",
    }
    page = tmp_path / "page.html"
    page.write_text(page_of(data), encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "<p>&lt;/script&gt;&lt;b&gt;</p>" in text
    embedded = text.split('id="waveplan-data">')[1].split("</script>")[0]
    assert json.loads(embedded) == json.loads(json.dumps(data))
    assert re.findall(r"(?:src|href)=(.{6})", text.replace(embedded, "")) == ['"data:']


@functools.cache
def browser() -> str:
    for name in ("chromium", "chromium-browser"):
        if found := shutil.which(name):
            return found
    if os.environ.get("WAVEPLAN_CHROMIUM") == "1":
        pytest.fail("WAVEPLAN_CHROMIUM=1, but there is neither chromium nor chromium-browser")
    pytest.skip("there is neither chromium nor chromium-browser")


PROBE = """<script>
addEventListener("load", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  const inside = ".scroll,pre,.ice,svg,.bar";  // these scroll or clip by themselves
  const wide = [...document.querySelectorAll("body *")].filter(
    node => !node.parentElement.closest(inside)
      && node.getBoundingClientRect().right > innerWidth + 1
  );
  parent.postMessage(JSON.stringify({
    width: innerWidth,
    scroll: document.documentElement.scrollWidth,
    wide: wide.map(node => node.outerHTML.slice(0, 80)),
    requests: performance.getEntriesByType("resource").map(entry => entry.name),
    headings: [...document.querySelectorAll("h2")].map(node => node.textContent),
    tall: Math.max(0, ...[...document.querySelectorAll("tr")].map(row => row.offsetHeight)),
    ink: getComputedStyle(document.body).color,
  }), "*");
});
</script>"""

# A window cannot be narrower than 500 pixels, a frame can.
FRAME = """<!doctype html><script>
addEventListener("message", event => {{
  const made = document.createElement("pre");
  made.id = "found";
  made.textContent = event.data;
  document.body.append(made);
}});
</script><body><iframe src="page.html" style="border:0;width:{width}px;height:900px"></iframe>"""


def shown(
    data: dict[str, Any], width: int, folder: Path, *flags: str, extra: str = ""
) -> dict[str, Any]:
    """The page in Chromium: sizes, requests, headings, and lines of its console."""
    path, frame = folder / "page.html", folder / "frame.html"
    path.write_text(page_of(data), encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    # The page forbids scripts; the probe is one. Loading anything stays forbidden.
    allowed = text.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';")
    assert allowed != text
    path.write_text(allowed.replace("</body>", extra + PROBE + "</body>"), encoding="utf-8")
    frame.write_text(FRAME.format(width=width), encoding="utf-8")
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000"]
    command += ["--virtual-time-budget=3000", "--enable-logging=stderr", "--v=0", *flags]
    done = subprocess.run(
        [*command, frame.as_uri()], capture_output=True, text=True, timeout=100, check=True
    )
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match, done.stderr
    found: dict[str, Any] = json.loads(html.unescape(match[1]))
    found["console"] = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return found


@pytest.mark.chromium
@pytest.mark.parametrize("name", CASES)
def test_chromium_shows_it_without_errors_requests_or_overflow(name: str, tmp_path: Path) -> None:
    data = case(name)
    for width in (1280, 390):
        found = shown(data, width, tmp_path)
        assert found["console"] == []
        assert found["requests"] == []
        assert found["width"] == width
        assert found["scroll"] <= width
        assert found["wide"] == []
        assert found["tall"] < 200
        assert found["headings"][0] == "Waves"
        assert ("Refused requests" in found["headings"]) == bool(data["refused"])
        assert ("Attention per CP rank" in found["headings"]) == (data["attention"] is not None)


@pytest.mark.chromium
def test_dark_mode_changes_the_ink(tmp_path: Path) -> None:
    light = shown(case("one rank"), 1280, tmp_path)
    dark = shown(case("one rank"), 1280, tmp_path, "--blink-settings=preferredColorScheme=0")
    assert light["ink"] != dark["ink"]


@pytest.mark.chromium
def test_the_probe_sees_what_it_looks_for(tmp_path: Path) -> None:
    data = {**case("one rank"), "title": "w" * 3000, "job": ["a" * 4000]}
    assert shown(data, 390, tmp_path)["scroll"] <= 390  # even such a title wraps
    bad = '<p style="width:900px">wide</p><img src="https://example.invalid/a.png">'
    broken = shown(data, 390, tmp_path, extra=bad)
    assert broken["scroll"] > 390
    assert any("900px" in node for node in broken["wide"])
    assert broken["console"]  # the refused picture


@pytest.mark.parametrize("name", CASES)
def test_pictures(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from waveplan.report.plots import overview

    overview(case(name), tmp_path / "plan.svg")
    assert (tmp_path / "plan.svg").read_text().count("<path") > 5


def test_check_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from waveplan.cli import main

    peaks = HERE / "data" / "peaks.json"
    assert main(["check", str(peaks), "--plot", str(tmp_path / "check.png")]) == 0
    assert (tmp_path / "check.png").read_bytes().startswith(b"\x89PNG")
