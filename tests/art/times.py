"""Times of the reference package's width search: alone, with ours in place, and ours by itself.

usage: FOLDER/bin/python tests/art/times.py [--write] [workload ...]

Alternating, in one process and on one thread; medians of CPU seconds of the thread. Each search
runs on a rank of its own that has searched one short request before and nothing of the pool, as
in a job, which reads its model once: "read once" is what that first search took.
--write puts the table between the markers of docs/art.md.
"""

from __future__ import annotations

import gc
import os
import platform
import re
import statistics
import sys
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
os.environ["WAVEPLAN_ART"] = "0"
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from waveplan.bench import peer, reference  # noqa: E402
from waveplan.bench.workloads import WAVES  # noqa: E402

reference.importable()

import rank as stub  # noqa: E402
import torch  # noqa: E402

from waveplan.integrations import art  # noqa: E402
from waveplan.report.table import Table, integer, seconds  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "art.md"
CPS = (1, 2, 4)
FIRST: list[float] = []
"""CPU seconds of the first searches of ranks."""
PATIENCE = 1.0
"""CPU seconds of searches of the package alone, after which it runs no more."""


def timed(call):
    gc.collect()
    began = time.thread_time()
    value = call()
    return time.thread_time() - began, value


def fresh(sequences, cp, available):
    """A rank that has seen none of these requests, and has a trusted profile for them."""
    rank, made = stub.planning_rank(cp, available), stub.requests(sequences)
    spent, _ = timed(lambda: rank._select_next_micro_batch(stub.requests([[1, 2, 3]]), 0))
    FIRST.append(spent)
    stub.forget()
    stub.learn(rank, made, bytes_per_token=0.0, packed_tokens=sum(map(len, sequences)))
    return rank, made


def search(sequences, cp, available, kept):
    rank, made = fresh(sequences, cp, available)
    kept.clear()
    spent, chosen = timed(lambda: rank._select_next_micro_batch(made, 0))
    found = chosen.stats_global_count, chosen.check.estimated_required_bytes
    return spent, (*found, chosen.rejected_candidates), chosen.plan


def confirming(sequences, cp, available, widths):
    """Seconds of the package's own plan and check of these widths, in the mode of each."""
    rank, made = fresh(sequences, cp, available)

    def price():
        for width, minimal in widths:
            rank._memory_check(rank._plan_flat_forward(made[:width], memory_minimal=minimal))

    return timed(price)[0]


def late(plan):
    """Seconds to make what a plan with ours makes when it is first read."""

    def read():
        for group in plan.groups:
            pack = group.packed
            assert len(group.input_row_fingerprints) == len(pack.positions_by_sequence)
            for tensor in (pack.tokens, pack.group_ids, pack.parent_ids, pack.position_ids):
                assert tensor.numel()

    return timed(read)[0]


def watch():
    """Keep the widths that the last search with ours has confirmed, and whether fully shared."""
    from waveplan.integrations.art import _search

    kept, theirs = [], _search.Proposal._theirs

    def recorded(proposal, width, kind):
        kept.append((width, kind == "full"))
        return theirs(proposal, width, kind)

    _search.Proposal._theirs = recorded
    return kept


def measure(name, cp, kept):
    """One line of the table."""
    make, available = WAVES[name]
    sequences = make()
    arrays = peer.columns(sequences)
    times = {key: [] for key in ("alone", "ours", "late", "first", "cold", "confirming")}
    while not times["alone"] or (len(times["alone"]) < 3 and sum(times["alone"]) < PATIENCE):
        art.uninstall()
        spent, wanted, _ = search(sequences, cp, available, kept)
        times["alone"].append(spent)
        report = art.install()
        FIRST.clear()
        for _ in range(3):
            spent, found, plan = search(sequences, cp, available, kept)
            assert found == wanted
            times["ours"].append(spent)
            times["late"].append(late(plan))
        times["first"] += FIRST
        (seam,) = [seam for seam in report.seams if seam.name == "width search"]
        assert (seam.calls, seam.declined, seam.failed) == (6, 0, 0)
        times["confirming"] += [confirming(sequences, cp, available, list(kept)) for _ in range(3)]
        for _ in range(3):
            planner = peer.Ours(cp, available, len(arrays[0]))
            spent, cold = timed(lambda planner=planner: planner.cold(*arrays))
            assert cold == wanted[:2]
            times["cold"].append(spent)
    median = {key: statistics.median(values) for key, values in times.items()}
    bound = 2 * median["cold"] + median["confirming"]
    return [
        name,
        str(cp),
        str(wanted[0]),
        seconds(median["alone"]),
        seconds(median["ours"]),
        integer(round(median["alone"] / median["ours"])),
        seconds(median["cold"]),
        seconds(median["confirming"]),
        f"{median['ours'] / bound:.2f}",
        seconds(median["late"]),
        seconds(median["first"]),
    ]


COLUMNS = (
    *("workload", "CP", "width", "package", "with ours", "ratio", "our own search"),
    *("plans and checks", "of the bound", "read later", "read once"),
)


def main(arguments):
    torch.set_num_threads(1)
    art.install()
    kept, lines = watch(), []
    for name in [one for one in arguments if one != "--write"] or WAVES:
        for cp in CPS:
            lines.append(measure(name, cp, kept))
            print(*lines[-1], flush=True)
    table = Table("", list(COLUMNS), lines, right=list(COLUMNS)[1:]).markdown()
    where = f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    text = f"{where}, openpipe-art {art.version()}.\n\n{table}"
    if "--write" in arguments:
        marked = re.compile(r"(?<=<!-- measured -->\n).*?(?=<!-- end -->)", re.DOTALL)
        page, found = marked.subn(lambda _: text.rstrip("\n") + "\n", PAGE.read_text("utf-8"))
        assert found == 1, "docs/art.md has no place for the figures"
        PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
