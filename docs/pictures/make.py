"""Draw the pictures of docs/how-it-works.md from the bundled rollouts, and with Chromium the pages.

python docs/pictures/make.py [FOLDER]
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

from waveplan import Budget, Planner, Requests, Sequences, Topology, Training, Wave, models
from waveplan.report.data import collect_tree
from waveplan.report.html import TREE
from waveplan.report.page import COLOURS

HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
    'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
)


def text(x: float, y: float, words: str, colour: str = "#333", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{words}</text>'


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.4, width):.1f}" height="{height:.1f}" '
        f'fill="{colour}" stroke="#fff" stroke-width="0.5"/>'
    )


def tree(wave: Wave) -> str:
    """Draw the prefix tree of a wave: the area of a box is its tokens in all sequences."""
    made = collect_tree(wave)
    parts = [HEAD.format(width=760, height=400)]
    for node in made["nodes"]:
        x, y = 4 + 752 * node["left"], 4 + 370 * node["top"]
        width, height = 752 * node["width"], 370 * node["height"]
        if width * height > 3:
            parts.append(box(x, y, width, height, TREE[node["kind"]][0]))
        if width > 100 and height > 14:
            parts.append(text(x + 4, y + 12, node["label"], "#fff"))
    for i in range(3):
        token, anchor = made["longest"] * i // 2, ("start", "middle", "end")[i]
        parts.append(text(4 + 376 * i, 390, f"token {token:,}", anchor=anchor))
    return "".join([*parts, "</svg>\n"])


def owners(wave: Wave) -> str:
    """Draw the chunks of a pack by the rank that owns them, and the tokens of each rank."""
    pack = wave.packs[0]
    ownership = pack.ownership
    assert ownership is not None
    scale = 752 / ownership.tokens
    parts = [HEAD.format(width=760, height=44 + 20 * ownership.ranks)]
    for i, owner in enumerate(ownership.owners.tolist()):
        start = i * ownership.chunk
        width = min(ownership.chunk, ownership.tokens - start) * scale
        parts.append(box(4 + start * scale, 4, width, 22, COLOURS[owner]))
    longest = int(pack.rank_tokens.max())
    for rank, tokens in enumerate(pack.rank_tokens.tolist()):
        y = 36 + 20 * rank
        parts += [
            text(4, y + 13, f"rank {rank}"),
            box(60, y, 600 * tokens / longest, 18, COLOURS[rank]),
        ]
        parts.append(text(756, y + 13, f"{tokens:,} tokens", anchor="end"))
    return "".join([*parts, "</svg>\n"])


def search(wave: Wave) -> str:
    """Draw the probes of a search in order: bytes required, against the bytes available."""
    probes = wave.probes
    top = max(probe.required for probe in probes) * 1.1
    left, bottom, width, height = 60.0, 190.0, 680.0, 170.0
    step = width / len(probes)
    line = bottom - height * wave.available / top
    parts = [HEAD.format(width=760, height=226)]
    for i, probe in enumerate(probes):
        tall = height * probe.required / top
        colour = COLOURS[2] if probe.fits else COLOURS[5]
        parts.append(box(left + (i + 0.15) * step, bottom - tall, 0.7 * step, tall, colour))
        parts.append(text(left + (i + 0.5) * step, bottom + 14, str(probe.width), anchor="middle"))
    parts.append(
        f'<line x1="{left}" x2="{left + width}" y1="{line:.1f}" y2="{line:.1f}" stroke="#c00"/>'
    )
    parts.append(text(left - 4, line + 4, "available", "#c00", "end"))
    parts.append(
        text(left + width / 2, bottom + 30, "width of each probe, in order", anchor="middle")
    )
    return "".join([*parts, "</svg>\n"])


PAGES = {
    "plan": "plan rollouts.npz --gpus 8 --cp 4 --ep 2 --gpu H100 --colocated 19GiB",
    "sweep": "sweep rollouts.npz --gpus 8 --tp 1,2 --cp 1,2,4 --ep 1,8,16 --gpu H100",
}
"""Command of each page that is shown."""
HEIGHT = (
    "<script>addEventListener('load',()=>document.title=document.documentElement.offsetHeight)"
    "</script></body>"
)


def pages(folder: Path, data: Path) -> None:
    """Write pictures of the two pages, as Chromium shows them."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        return
    with TemporaryDirectory() as made:
        shutil.copy(data, Path(made) / "rollouts.npz")
        for name, command in PAGES.items():
            words = [*command.split(), "--model", "qwen3.6-35b-a3b", "--html", f"{name}.html"]
            run = subprocess.run([sys.executable, "-m", "waveplan", *words], cwd=made, check=False)
            assert run.returncode in (0, 1)
            page = Path(made) / f"{name}.html"
            shown = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
            shown += [f"--user-data-dir={made}/profile"]
            # A copy that may run a script says how high the page is.
            text = page.read_text(encoding="utf-8").replace("default-src 'none'; ", "")
            measured = Path(made) / "measured.html"
            measured.write_text(text.replace("</body>", HEIGHT), encoding="utf-8")
            asked = [*shown, "--window-size=1100,800", "--dump-dom", measured.as_uri()]
            done = subprocess.run(asked, check=True, capture_output=True, text=True)
            height = re.findall(r"<title>(\d+)</title>", done.stdout)[0]
            shown += [f"--window-size=1100,{height}"]
            shown += [f"--screenshot={folder.absolute() / name}.png", page.as_uri()]
            subprocess.run(shown, check=True, capture_output=True)


def main(folder: Path) -> None:
    """Write the three pictures and the pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with as_file(files("waveplan") / "data" / "demo.npz") as path:
        sequences = Sequences.load(path)
        pages(folder, path)
    model = models.get("qwen3.6-35b-a3b")
    job = (Training(recompute="full", lora_rank=8), Budget(available="16 GiB"))
    wave = Planner(model, Topology(cp=4), *job).wave(Requests(sequences, targets=True))
    for draw in (tree, owners, search):
        (folder / f"{draw.__name__}.svg").write_text(draw(wave), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
