"""Profile cold searches: the share of CPU cycles of each part of the work.

    python benches/shares.py pool_4m_1024req:1 near_identical_64x4k:8 unique10_195k:1
    python benches/shares.py --emptied unique10_195k:1   # the CPU's caches emptied before each

Needs Linux's perf, and a release build with its symbols (`maturin develop --release`). Each search
is by a new planner, on a pool it has not read; only the searches are counted, on the one planning
thread.
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
from waveplan.report.table import Table

# The first pattern that matches "library function" names the part.
PARTS = (
    (
        "every token checked, columns of requests",
        r"_core.*(refuse_negative|sequences::|pool::|mixes)",
    ),
    ("shared prefixes compared, tree", r"memcmp|_core.*(waveplan::tree|common_prefix)"),
    ("layouts", r"_core.*waveplan::layout"),
    ("chunks to ranks", r"_core.*waveplan::(ownership|segments)"),
    ("gdn segments", r"_core.*waveplan::gdn"),
    ("measures and prices", r"_core.*waveplan::(measures|price|heads|scattered)"),
    ("search, the rest of the core", r"_core"),
    ("interpreter", r"python"),
    ("numpy", r"numpy|_multiarray|openblas"),
    ("memory and C library", r"libc|libm|libgcc|ld-linux"),
    ("kernel", r"kernel|\[k\]"),
)


class Recorder:
    """Run perf on this thread, counting between `start` and `stop` only."""

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

    def _send(self, word: bytes) -> None:
        os.write(self.control, word + b"\n")
        os.read(self.acknowledged, 16)

    def start(self) -> None:
        """Start to count."""
        self._send(b"enable")

    def stop(self) -> None:
        """Stop counting."""
        self._send(b"disable")

    def functions(self) -> Counter[tuple[str, str]]:
        """End perf; return the share of each (library, function), in percent."""
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
    """Return the shares of the functions in `runs` cold searches of a workload."""
    make, available = WAVES[name]
    tokens, offsets = peer.columns(make())
    planners = [peer.Ours(cp, available, len(tokens)) for _ in range(runs + 3)]
    for planner in planners[runs:]:
        planner.cold(tokens, offsets)
    gc.freeze()  # no collection visits the planners that wait
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
    """Return the part of the work that a function belongs to."""
    named = f"{library} {function}"
    return next((part for part, pattern in PARTS if re.search(pattern, named)), "other")


def main() -> int:
    """Print a table of parts, a column a workload, then each workload's largest functions."""
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
    columns = [f"`{workload}`" for workload in made]
    table = Table("", ["share of CPU cycles", *columns], right=columns)
    for part in (*(name for name, _ in PARTS), "other"):
        shares = [parts[workload][part] for workload in made]
        if max(shares) >= 0.5:
            table.add(part, *(f"{share:.0f}%" for share in shares))
    print(table.markdown())
    for workload, functions in made.items():
        largest = Table(f"\n{workload}", ("share", "library", "function"), right=("share",))
        for (library, function), share in functions.most_common(8):
            largest.add(f"{share:.1f}%", library, function[:90])
        print(largest.plain())
    return 0


if __name__ == "__main__":
    sys.exit(main())
