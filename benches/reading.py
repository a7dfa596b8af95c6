"""Reading sequences, each beside the plain reader of the same input in one run.

python benches/reading.py [--short 1000000] [--tokens 20000000] [--json FILE]

- JSON lines: `Sequences.load` with pyarrow beside `pyarrow.json.read_json`, and without it beside
  `json.loads` a line; many short sequences, and few long ones with a mask. Peak memory is that of a
  process of its own, over what it needs for a small file, in units of the tokens (8 bytes each).
- 1,024 short tensors beside two arrays: the time to the first wave. Tensors are torch's where it is
  installed, else numpy's arrays, one each.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from waveplan import Budget, Planner, Requests, Sequences, Topology, Training, models

READ = """
import sys
from waveplan import Sequences
from waveplan.sequences import lines as files
if sys.argv[2] == "json":
    files.find_spec = lambda name: None
Sequences.load(sys.argv[1])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
"""


def seconds(work: Callable[[], Any], repeat: int = 3) -> float:
    """Return the least of some times."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def write(path: Path, count: int, length: int, mask: bool) -> int:
    """Write JSON lines; return their tokens."""
    chance = np.random.default_rng(1)
    tokens = 0
    with path.open("w") as file:
        for _ in range(count):
            many = int(chance.integers(length // 2, length * 3 // 2))
            row: dict[str, Any] = {"input_ids": chance.integers(0, 150_000, many).tolist()}
            if mask:
                row["loss_mask"] = (np.arange(many) > many // 2).astype(int).tolist()
            file.write(json.dumps(row) + "\n")
            tokens += many
    return tokens


def peak(path: Path, reader: str) -> int:
    """Return the peak memory of a process that reads a file."""
    command = [sys.executable, "-c", READ, str(path), reader]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def plain(path: Path) -> None:
    """Read a file by json alone."""
    with path.open("rb") as lines:
        for line in lines:
            json.loads(line)


def lines(folder: Path, short: int, tokens: int) -> dict[str, Any]:
    """Compare the readers of JSON lines."""
    import pyarrow.json

    from waveplan.sequences import lines as files

    small = folder / "small.jsonl"
    write(small, 100, 10, mask=False)
    found = {}
    for name, count, length, mask in (
        ("short", short, 20, False),
        ("long", max(1, tokens // 4_000), 4_000, True),
    ):
        path = folder / f"{name}.jsonl"
        size = write(path, count, length, mask)
        repeat = 1 if path.stat().st_size > 300 << 20 else 3
        installed, known = files.find_spec, {"pyarrow": 0.0, "json": 0.0}
        ours = {}
        for reader in known:
            files.find_spec = installed if reader == "pyarrow" else lambda _: None
            ours[reader] = seconds(lambda path=path: Sequences.load(path), repeat)
        files.find_spec = installed
        known["pyarrow"] = seconds(lambda path=path: pyarrow.json.read_json(path), repeat)
        known["json"] = seconds(lambda path=path: plain(path), repeat)
        found[name] = {
            "sequences": count,
            "tokens": size,
            "bytes": path.stat().st_size,
            **{f"seconds_{reader}": ours[reader] for reader in ours},
            **{f"over_{reader}": ours[reader] / known[reader] for reader in ours},
            **{
                f"peak_tokens_{reader}": (peak(path, reader) - peak(small, reader)) / (8 * size)
                for reader in ours
            },
        }
        path.unlink()
    return found


def tensors() -> dict[str, Any]:
    """Compare the first wave of short tensors with that of two arrays."""
    chance = np.random.default_rng(2)
    parts = [chance.integers(0, 150_000, 40) for _ in range(1_024)]
    flat, offsets = np.concatenate(parts), np.arange(1_025) * 40
    kind = "numpy"
    if importlib.util.find_spec("torch") is not None:
        import torch

        kind, parts = "torch", [torch.from_numpy(part) for part in parts]
    planner = Planner(models.get("qwen3-0.6b"), Topology(), Training(), Budget(available="40 GiB"))

    def first(sequences: Callable[[], Any]) -> float:
        times = []
        for _ in range(21):
            start = time.perf_counter()
            next(iter(planner.waves(Requests(sequences()))))
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    arrays, listed = first(lambda: Sequences(flat, offsets)), first(lambda: parts)
    return {"kind": kind, "seconds": listed, "over_arrays": listed / arrays}


def main() -> None:
    """Print the comparisons as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", type=int, default=1_000_000, help="short sequences")
    parser.add_argument("--tokens", type=int, default=20_000_000, help="tokens of long ones")
    parser.add_argument("--json", type=Path, help="also write the figures to a file")
    args = parser.parse_args()
    found: dict[str, Any] = {"tensors": tensors()}
    if importlib.util.find_spec("pyarrow") is not None:
        with tempfile.TemporaryDirectory() as folder:
            found["lines"] = lines(Path(folder), args.short, args.tokens)
    text = json.dumps(found, indent=1)
    print(text)
    if args.json is not None:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
