"""The report page: its data, its text, and how Chromium shows it at two widths; its pictures.

Tests marked ``chromium`` need a browser of that name. They are skipped without one, and fail
instead where WAVEPLAN_CHROMIUM=1 says that there must be one.
"""

from __future__ import annotations

import argparse
import functools
import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import HERE

from waveplan.budget import format_bytes
from waveplan.cli import main
from waveplan.desk.jobs import Job, Source
from waveplan.desk.sweep import jobs, run_job
from waveplan.planner import Planner, Waves
from waveplan.refusal import WaveRefused
from waveplan.report.data import collect, rank_prices
from waveplan.report.html import milliseconds
from waveplan.report.html import page as page_of
from waveplan.report.page import chart, unbroken
from waveplan.report.summary import summary, wave_table
from waveplan.report.sweep import collect as collect_sweep
from waveplan.report.sweep import page as sweep_page
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
    "tight": (Job(model="qwen3-1.7b", tp=2, available="3GiB"), shared(60, 3000, 900)),
    "device": (Job(model="qwen3-8b", budget="24GiB"), shared(60, 3000, 900)),
    "shares": (
        Job(model=MODEL, dp=2, cp=2, available="3GiB", objective="widest"),
        shared(60, 300, 90),
    ),
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
    below = page.read_text().partition("<h2>Waves</h2>")[2]
    table = re.search(r"<thead><tr>(.*?)</table>", below)
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
        assert {
            name: wave[name] for name in shown.keys() & wave.keys() - {"stopped", "shares"}
        }.items() <= (shown.items())
        times = [sum(pack_times(plan)) for plan in plans]
        assert wave["time_ms"] == shown["time_ms"] == max(times) > 0
        assert [share["time_ms"] for share in shown["shares"]] == times
        assert [share["required"] for share in shown["shares"]] == [
            share["required"] for share in shares
        ]
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
        written["time"] = milliseconds(wave["time_ms"])
        assert written.items() <= dict(zip(names, row, strict=True)).items()


def pack_times(plan: dict[str, Any]) -> list[float]:
    return [pack["time_ms"] for forward in plan["forwards"] for pack in forward["packs"]]


def test_plots_give_the_times_and_bytes_of_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At DP 2 every bar that matplotlib draws is a number of the page."""
    pytest.importorskip("matplotlib")
    from waveplan.report import plots

    data = case("shares")
    drawn: dict[str, list[float]] = {}

    def keep(figure: Any, _: Path) -> None:
        for axes in figure.axes:
            sizes = [(bar.get_height(), bar.get_width()) for bar in axes.patches]
            across = axes.get_title().startswith(("Memory", "Attention"))
            drawn[axes.get_title()] = [size[across] for size in sizes]

    monkeypatch.setattr(plots, "_save", keep)
    plots.overview(data, tmp_path / "plan.svg")
    page = page_of(data)
    waves = data["waves"]
    shares = [wave["shares"][rank] for rank in range(2) for wave in waves]
    times, required = drawn["modelled time of each wave"], drawn["required by each wave"]
    assert times == [share["time_ms"] for share in shares]
    assert required == [share["required"] / 2**30 for share in shares]
    for share in shares:
        assert f">{milliseconds(share['time_ms'])}</td>" in page
        assert f">{format_bytes(share['required'])}</td>" in page
    card = next(sizes for title, sizes in drawn.items() if title.startswith("Memory"))
    assert card == pytest.approx([part["bytes"] / 2**30 for part in data["card"]["parts"]])
    ranks = data["owners"]["ranks"]
    attention = drawn["Attention of one layer, the largest pack"]
    assert attention == pytest.approx(
        [rank[part] for part in ("forward_ms", "backward_ms") for rank in ranks]
    )
    for rank in ranks:
        assert f">{milliseconds(rank['forward_ms'] + rank['backward_ms'])}</td>" in page


def test_times_of_a_column_have_one_unit() -> None:
    waves = [
        {**wave, "time_ms": size}
        for wave, size in zip(case("tight")["waves"], (9e3, 2e4), strict=False)
    ]
    table = wave_table(waves)
    assert [row[table.columns.index("time")] for row in table.rows] == ["9.00 s", "20.00 s"]


def test_a_number_over_a_bar_stands_clear_of_the_limit() -> None:
    made = chart("of", [[95.0], [100.0], [50.0]], "{:g}".format, line=("at most", 100.0))
    assert "; <b>at most</b></figcaption>" in made
    shifts = re.findall(r'<span style="bottom:([\d.]+)%">(\d+)</span>', made)
    assert shifts == [("105.26", "95"), ("100.00", "100"), ("100.00", "50")]


def test_ranks_do_not_break() -> None:
    assert unbroken("on DP 8 TP 2 SP, 16 GPUs") == "on DP\u00a08\u00a0TP\u00a02\u00a0SP, 16 GPUs"


def test_widths_that_were_tried_say_what_is_priced() -> None:
    text = page_of(case("shares"))
    assert "the share of the DP rank that requires most in the wave, at an even share of" in text
    assert "Layouts: optimal, least work" in text
    assert "A figure here is of one layout of a width;" in page_of(case("one rank"))


def test_cases_are_what_they_are_called() -> None:
    assert len(case("hundreds of waves")["waves"]) > 200
    assert case("no wave")["waves"] == []
    assert len(case("no wave")["refused"]) == 40
    assert len(case("eight ranks")["owners"]["ranks"]) == 8
    assert len({node["left"] for node in case("deep tree")["tree"]["nodes"]}) >= 50
    assert case("doubtful rules")["doubtful"]
    assert all(node["kind"] == "own" for node in case("no sharing")["tree"]["nodes"])
    assert case("device")["card"]["resident"] > 0


@pytest.mark.parametrize("name", CASES)
def test_bars_add_up_and_the_busiest_rank_is_the_price(name: str) -> None:
    data = case(name)
    for wave in data["waves"]:
        assert wave["required"] <= data["available"]
    card = data["card"]
    assert sum(part["bytes"] for part in card["parts"]) == card["whole"]
    if data["tightest"] is None:
        return
    used = sum(part["bytes"] for part in card["parts"] if part["kind"] == "wave")
    assert used == card["wave"] == data["waves"][data["tightest"] - 1]["required"]
    job, requests = CASES[name]
    _, waves, _ = planned(job, requests)
    tightest = max(waves, key=lambda wave: wave.required)
    prices = [price.required for price in rank_prices(tightest.plan)]
    assert max(prices) == tightest.plan.price.required


@pytest.mark.parametrize("name", CASES)
def test_boxes_of_the_tree_lie_inside_their_parents(name: str) -> None:
    tree = case(name)["tree"]
    nodes = tree["nodes"]
    for node in nodes:
        assert node["left"] + node["width"] <= 1 + 1e-9
        if node["left"] > 0 and not tree["hidden"]:
            above = [
                other
                for other in nodes
                if abs(other["left"] + other["width"] - node["left"]) < 1e-9
                and other["top"] <= node["top"] + 1e-9
                and node["top"] + node["height"] <= other["top"] + other["height"] + 1e-9
            ]
            assert len(above) == 1


@pytest.mark.parametrize("name", ["eight ranks", "deep tree", "no sharing", "one rank"])
def test_the_area_of_a_box_is_its_tokens_in_all_sequences(name: str) -> None:
    job, requests = CASES[name]
    _, waves, _ = planned(job, requests)
    tree = case(name)["tree"]
    area = sum(node["width"] * node["height"] for node in tree["nodes"])
    tightest = max(waves, key=lambda wave: wave.required)
    pack = max(tightest.plan.largest.packs, key=lambda pack: pack.packed_tokens)
    logical = int(requests.lengths[pack.requests].sum())
    assert area * tree["sequences"] * tree["longest"] == pytest.approx(logical)
    assert tree["saved"] == pack.saved_tokens
    assert sum(tree["tokens"].values()) == pack.packed_tokens


def test_owners_have_every_rank_and_token() -> None:
    owners = case("eight ranks")["owners"]
    assert [rank["rank"] for rank in owners["ranks"]] == list(range(8))
    assert sum(size for _, size in owners["runs"]) == owners["tokens"]
    assert {rank for rank, _ in owners["runs"]} == set(range(8))
    assert case("one rank")["owners"] is None


@pytest.mark.parametrize("name", ["tight", "device", "shares"])
def test_what_is_said_to_let_one_more_fit_does(name: str) -> None:
    """A wave of one more is planned anew with each change that the page names."""
    job, requests = CASES[name]
    more = case(name)["more"]
    assert more["kind"] == "memory"
    _, waves, _ = planned(job, requests)
    wave = waves[more["wave"] - 1]
    assert wave.stopped.plan is not None
    wider = np.sort(wave.stopped.plan.requests)
    assert job.dp > 1 or len(wider) == more["width"]
    assert more["changes"][0]["change"].endswith("more memory on each GPU")
    assert [change["fits"] for change in more["changes"]].count(True) >= 2
    for change in more["changes"][1:]:
        flags = change["change"].split()
        given = {"cp": None, "tp": None, "ep": None}
        parser = argparse.ArgumentParser()
        for flag in given:
            parser.add_argument(f"--{flag}", type=int)
        parser.add_argument("--sequence-parallel", action="store_true", default=None)
        parser.add_argument("--recompute")
        values = {k: v for k, v in vars(parser.parse_args(flags)).items() if v is not None}
        other = replace(job, **values).planner()
        assert other.topology.world == change["gpus"]
        alone = Requests(requests.sequences.take(wider))
        if change["fits"]:
            assert change["required"] <= change["available"]
            other.plan(alone, available=change["available"])
        else:
            with pytest.raises(WaveRefused) as refused:
                other.plan(alone, available=change["available"])
            assert refused.value.required == change["required"]


def test_labels_cannot_become_markup(tmp_path: Path) -> None:
    data = {
        **case("doubtful rules"),
        "title": "<script>alert(1)</script>",
        "answer": "</script><b>",
    }
    page = tmp_path / "page.html"
    page.write_text(page_of(data), encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "<h1>&lt;/script&gt;&lt;b&gt;</h1>" in text
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
  const inside = ".scroll,pre,.ice,.bar,.over";  // these scroll or clip by themselves
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
    tall: Math.max(0, ...[...document.querySelectorAll("tr")]
      .filter(row => getComputedStyle(row).display === "table-row").map(row => row.offsetHeight)),
    cut: [...document.querySelectorAll("pre,.records .scroll")]
      .filter(node => node.scrollWidth > node.clientWidth + 1)
      .map(node => node.outerHTML.slice(0, 80)),
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
    data: dict[str, Any],
    width: int,
    folder: Path,
    *flags: str,
    extra: str = "",
    made: Callable[[dict[str, Any]], str] = page_of,
) -> dict[str, Any]:
    """The page in Chromium: sizes, requests, headings, and lines of its console."""
    path, frame = folder / "page.html", folder / "frame.html"
    text = made(data)
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
        assert found["cut"] == []
        assert found["headings"][0] == "Memory of one GPU"
        assert ("Refused requests" in found["headings"]) == bool(data["refused"])
        assert ("Owners" in found["headings"]) == (data["owners"] is not None)


@pytest.mark.chromium
def test_chromium_shows_a_sweep(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", tokens=np.arange(9_000) % 5_000, offsets=np.arange(0, 9_001, 300))
    axes = {"model": [MODEL], "cp": [1, 2, 4], "ep": [1, 2, 3], "recompute": ["full", "none"]}
    wanted = jobs({**axes, "dp": [1, 2], "available": ["200MiB", "3GiB"]})
    source = Source(path=str(tmp_path / "a.npz"))
    results = [(job, run_job(job, source)) for job in wanted]
    assert {out.status for _, out in results} == {"ok", "refused", "impossible"}
    data = collect_sweep(
        results, [wanted[0].model_text()], {"command": "waveplan sweep " + "x" * 300}
    )
    # What is refused stands openly under what is not, with its reasons.
    above, _, below = sweep_page(data).partition(" cannot plan every request</h3>")
    reasons = [html.escape(row["reason"]) for row in data["rows"] if row["status"] == "refused"]
    assert reasons
    assert all(reason in below.partition("<details>")[0] for reason in reasons)
    assert 'class="note"' not in above
    for width in (1280, 390):
        found = shown(data, width, tmp_path, made=sweep_page)
        assert found["console"] == found["requests"] == found["wide"] == found["cut"] == []
        assert found["scroll"] <= width
        assert found["headings"] == ["Configurations", "Assumed"]


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
