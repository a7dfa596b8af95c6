"""Where the time of cold searches goes, by the functions that run.

    python benches/shares.py pool_4m_1024req:1 near_identical_64x4k:8 unique10_195k:1
    python benches/shares.py --emptied unique10_195k:1   # the CPU's caches emptied before each

Needs Linux's perf, and a release build with its symbols (`maturin develop --release`). Each search
is a new planner's on a pool it has not seen; nothing but the searches is counted. Shares are of
the CPU cycles of the one planning thread.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

from waveplan.bench import peer
from waveplan.bench.workloads import WAVES

# The first that fits a library and function names what it works on.
PARTS = (
    ("every token checked, columns of requests", r"_core.*(PyPool|refuse_negative|pool::|mixes)"),
    ("shared prefixes compared, tree", r"memcmp|_core.*(waveplan::tree|common_prefix)"),
    ("layouts", r"_core.*waveplan::layout"),
    ("chunks to ranks", r"_core.*waveplan::(assign|segments)"),
    ("gdn segments", r"_core.*waveplan::gdn"),
    ("measures and prices", r"_core.*waveplan::(measures|price|heads|split)"),
    ("search, the rest of the core", r"_core"),
    ("interpreter", r"python"),
    ("numpy", r"numpy|_multiarray|openblas"),
    ("memory and C library", r"libc|libm|libgcc|ld-linux"),
    ("kernel", r"kernel|\[k\]"),
)


class Recorder:
    """perf on this thread, counting between `start` and `stop` alone."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "perf.data"
        control, acknowledged = folder / "control", folder / "acknowledged"
        os.mkfifo(control)
        os.mkfifo(acknowledged)
        command = ["perf", "record", "-q", "-F", "15000", "-e", "cycles", "-D", "-1"]
        command += ["-t", str(threading.get_native_id()), "-o", str(self.data)]
        command += [f"--control=fifo:{control},{acknowledged}"]
        self.perf = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self.control = os.open(control, os.O_RDWR)
        self.acknowledged = os.open(acknowledged, os.O_RDWR)

    def _tell(self, word: bytes) -> None:
        os.write(self.control, word + b"\n")
        os.read(self.acknowledged, 16)

    def start(self) -> None:
        """Counts from here on."""
        self._tell(b"enable")

    def stop(self) -> None:
        """Counts no further."""
        self._tell(b"disable")

    def functions(self) -> Counter[tuple[str, str]]:
        """Ends; share of each (library, function), in percent."""
        os.write(self.control, b"stop\n")
        self.perf.wait()
        command = ["perf", "report", "-i", str(self.data), "--stdio", "-t", "|"]
        command += ["--sort", "dso,symbol", "--percent-limit", "0"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found: Counter[tuple[str, str]] = Counter()
        for line in done.stdout.splitlines():
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) >= 3 and cells[0].endswith("%"):
                found[cells[1], cells[2]] += float(cells[0][:-1])
        return found


def profile(name: str, cp: int, runs: int, emptied: bool) -> Counter[tuple[str, str]]:
    """Shares of the functions that `runs` cold searches of a workload run."""
    make, free = WAVES[name]
    tokens, offsets = peer.columns(make())
    planners = [peer.Ours(cp, free, len(tokens)) for _ in range(runs + 3)]
    for planner in planners[runs:]:
        planner.cold(tokens, offsets)
    gc.freeze()  # no collection looks at what waits here
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder))
        for planner in planners[:runs]:
            if emptied:
                peer.evict()
            recorder.start()
            planner.cold(tokens, offsets)
            recorder.stop()
        return recorder.functions()


def part_of(library: str, function: str) -> str:
    """The part of the work that a function belongs to."""
    named = f"{library} {function}"
    return next((part for part, pattern in PARTS if re.search(pattern, named)), "other")


def main() -> int:
    """One table of parts, a column a workload, then each workload's largest functions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="+", help="workload:CP")
    parser.add_argument("--emptied", action="store_true", help="empty the CPU's caches first")
    parser.add_argument("--runs", type=int, default=300)
    args = parser.parse_args()
    if shutil.which("perf") is None:
        raise SystemExit("benches/shares.py needs perf (Debian: linux-perf)")
    made, parts = {}, {}
    for workload in args.workloads:
        name, cp = workload.split(":")
        functions = made[workload] = profile(name, int(cp), args.runs, args.emptied)
        parts[workload] = Counter[str]()
        for (library, function), share in functions.items():
            parts[workload][part_of(library, function)] += share
    print("| share of CPU cycles |", *(f"`{w}` |" for w in made))
    print("| --- |", *("---: |" for _ in made))
    for part in (*(name for name, _ in PARTS), "other"):
        shares = [parts[workload][part] for workload in made]
        if max(shares) >= 0.5:
            print(f"| {part} |", *(f"{share:.0f}% |" for share in shares))
    for workload, functions in made.items():
        print(f"\n{workload}")
        for (library, function), share in functions.most_common(8):
            print(f"  {share:5.1f}%  {library}  {function[:90]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
