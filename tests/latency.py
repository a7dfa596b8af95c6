"""How soon Ctrl-C stops each long call. Run by hand.

    python tests/latency.py              # some minutes
    python tests/latency.py tree,read    # calls whose names begin so

Ctrl-C is pressed at several moments of a call, and what is printed is the processor time until the
exception is out: other work on the machine does not count. Sweeps wait for other processes, so
there it is the time on the clock. Needs Linux.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import os
import select
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
ROOT = Path(__file__).parents[1]
MOMENTS = (0.03, 0.2, 0.4, 0.6, 0.8, 0.97)
SHORT, ENOUGH = 0.05, 6.0
"""Seconds: calls below the first need no stop; no call is let run longer than the second."""


class Presser:
    """Another process that presses Ctrl-C here when a clock of this process shows a time.

    It needs neither this interpreter nor its lock, and notes when it pressed.
    """

    def __init__(self) -> None:
        own = os.getpid()
        self.clock = {False: (~own << 3) | 2, True: time.CLOCK_MONOTONIC}
        (heard, self.tell), (self.told, say) = os.pipe(), os.pipe()
        if os.fork() == 0:
            self._serve(own, heard, say)

    def _serve(self, own: int, heard: int, say: int) -> None:
        os.close(self.tell)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while order := os.read(heard, 16):
            real, at = struct.unpack("dd", order)
            clock, pressed = self.clock[bool(real)], math.nan
            while not select.select([heard], [], [], 0.0005)[0]:
                if math.isnan(pressed) and time.clock_gettime(clock) >= at:
                    pressed = time.clock_gettime(clock)
                    os.kill(own, signal.SIGINT)
            os.read(heard, 16)
            os.write(say, struct.pack("d", pressed))
        os._exit(0)

    def run(self, call: Callable[[], Any], after: float, real: bool) -> tuple[float, float]:
        """Seconds that the call ran, and how many of them after Ctrl-C; nan: was not stopped."""
        clock = self.clock[real]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        begin = time.clock_gettime(clock)
        os.write(self.tell, struct.pack("dd", real, begin + after))
        try:
            answer = call()
            stopped = isinstance(answer, int) and answer == 130  # the status of a command
            end = time.clock_gettime(clock)
        except KeyboardInterrupt:
            end = time.clock_gettime(clock)
            stopped = True
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(self.tell, bytes(16))
        pressed = struct.unpack("d", os.read(self.told, 8))[0]
        return end - begin, end - pressed if stopped else math.nan


def delays(presser: Presser, call: Callable[[], Any], real: bool) -> tuple[float, list[float]]:
    """How long the call takes, and how long it went on after Ctrl-C at each moment."""
    whole, late = presser.run(call, ENOUGH, real)
    if whole < SHORT:
        return whole, []
    moments = [share * min(whole, ENOUGH) for share in MOMENTS]
    found = [late, *(presser.run(call, after, real)[1] for after in moments)]
    return whole, [one for one in found if not math.isnan(one)]


def comb(sequences: int) -> Any:
    """Row i is the first i tokens of one chain and a token of its own."""
    from waveplan import Sequences

    chain = np.arange(sequences) % 1000
    parts = [np.append(chain[:i], 2000 + i) for i in range(sequences)]
    return Sequences(np.concatenate(parts), np.cumsum([0, *map(len, parts)]))


def calls(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Public entry points that can take long, on inputs with which they do."""
    import waveplan
    from waveplan import (
        OwnershipSettings,
        Packing,
        Planner,
        Requests,
        Scoring,
        Sequences,
        StageWork,
        Topology,
        Training,
        WorkloadProfile,
        models,
    )
    from waveplan._core import stage_times
    from waveplan.pricing.resident import resident

    rng = np.random.default_rng(1)
    count = 1_000_000
    offsets = np.arange(count + 1) * 20
    narrow = rng.integers(0, 50_000, 20 * count).astype(np.int32)
    listed = narrow[:4_000_000].tolist()
    yield "sequences int32", lambda: Sequences(narrow, offsets)
    yield "sequences list", lambda: Sequences(listed, [0, len(listed)])
    yield "sequences matrix", lambda: Sequences.from_any(narrow.reshape(count, 20))
    nested = [listed[i : i + 20] for i in range(0, len(listed), 20)]
    yield "sequences nested lists", lambda: Sequences.from_any(nested)
    sequences = Sequences(narrow, offsets)
    yield "sequences take", lambda: sequences.take(np.arange(count)[::-1])

    chain = comb(3000)
    wide = Sequences(np.arange(count), np.arange(count + 1))
    yield "tree of many", lambda: waveplan.tree(sequences)
    yield "tree of a chain", lambda: waveplan.tree(chain)
    tree, deep = waveplan.tree(sequences), waveplan.tree(chain)
    yield "tree restrict", lambda: tree.restrict(np.arange(count)[::-1])
    yield "tree prefixes", lambda: waveplan.tree(wide).packed(count // 2)
    yield "tree sequences", lambda: waveplan.tree(wide).sequences
    yield "pack many", lambda: waveplan.pack(sequences)
    yield "pack a chain", lambda: waveplan.pack(chain, max_depth=7)
    packed, chained = waveplan.pack(sequences), waveplan.pack(chain)
    yield "packing members", lambda: waveplan.pack(wide).members
    yield "packing ids", lambda: packed.position_ids
    lengths, parents = packed.lengths, packed.parents
    yield "packing from segments", lambda: Packing.from_segments(lengths, parents)
    packs, above = packed.group_ids, packed.parent_ids
    yield "packing from ids", lambda: Packing.from_ids(packs, above)
    roots = np.arange(1 << 24)
    yield "packing from many ids", lambda: Packing.from_ids(roots, roots)

    score = Scoring(version=1, tp=1, cp=2, layers=28, gdn_layers=0, uses_gdn=True)
    least = int((deep.end - deep.start).sum())
    yield "layout exact", lambda: waveplan.choose_layout(deep, score, method="exact")
    yield "layout reference", lambda: waveplan.choose_layout(deep, score, method="reference")
    yield (
        "layout that fits",
        lambda: waveplan.choose_layout(deep, score, most_tokens=least + least // 50),
    )
    yield "layout of many", lambda: waveplan.choose_layout(tree, score, method="exact")

    fine = OwnershipSettings(block=1, chunk=16, chunk_budget_base=0, chunk_budget_per_rank=0)
    stage = StageWork(1, 2, 3, 4, 5, 6, 7)
    sparse = OwnershipSettings(profile=WorkloadProfile((stage,), 16, 16, 1 << 20, 1 << 20, 2))
    huge = Packing.from_segments([2**31], [-1])
    some = Packing.from_segments([100] * 10_000, [-1] * 10_000)
    yield "assign", lambda: waveplan.own(some, 64, fine)
    yield "assign many segments", lambda: waveplan.own(packed, 4)
    yield "assign many ranks", lambda: waveplan.own(huge, 4096)
    yield "assign sparse", lambda: waveplan.own(huge, 4096, sparse)
    yield "assign sparse chain", lambda: waveplan.own(chained, 64, sparse)
    yield "assign stage_times", lambda: stage_times(some, 64, fine)
    line = Packing.from_segments(np.ones(8000, np.int64), np.arange(-1, 7999))
    yield "attention slices", lambda: waveplan.attention_slices(line)
    owned = waveplan.own(some, 64)
    yield "gdn", lambda: waveplan.gdn(some, owned)
    wide = waveplan.GdnSettings(candidates=2000, branch=500)
    parents = np.append(-1, np.random.default_rng(5).integers(0, np.arange(1, 20_000)))
    bushy = waveplan.Packing.from_segments(np.full(20_000, 2000), parents)
    yield "gdn of a wide search", lambda: waveplan.gdn(bushy, waveplan.own(bushy, 8), wide)
    yield "gdn many segments", lambda: waveplan.gdn(packed, waveplan.own(packed, 8))
    placed = waveplan.gdn(some, owned)
    yield "gdn schedule", lambda: waveplan.gdn_schedule(packed)
    yield "gdn schedules", lambda: waveplan.gdn_schedule_per_rank(some, placed)

    yield "requests", lambda: Requests(sequences)
    yield "requests one label each", lambda: Requests(sequences, targets=np.arange(count) % 20)
    mask = rng.random(20 * count) < 0.5
    yield "requests mask", lambda: Requests(sequences, targets=mask).labelled
    one = np.zeros(200_000_000, np.int64), [0, 200_000_000]
    flags = rng.integers(0, 2, len(one[0]), bool)
    yield "requests mask of one", lambda: Requests(Sequences(*one), targets=flags)
    masks = [mask[i : i + 20] for i in range(0, 4_000_000, 20)]
    part = Sequences(narrow[:4_000_000], offsets[:200_001])
    yield "requests masks", lambda: Requests(part, targets=masks)
    mixed = (np.arange(count) % 7).tolist()
    names = [f"adapter {i}" for i in mixed]
    yield (
        "requests options",
        lambda: Requests(sequences, adapter=names, top_k=[i + 1 for i in mixed]),
    )
    pool, chain_pool = Requests(sequences), Requests(comb(1500))
    yield "requests groups", lambda: pool.packs(np.arange(count)[::-1])

    def planner(**options: Any) -> Planner:
        training = Training(recompute="full", lora_rank=8)
        model = models.get("qwen3.6-35b-a3b")
        return Planner(model, Topology(cp=2), training, "20GiB", **options)

    yield "waves of many", lambda: planner().wave(pool)
    yield "waves of a chain", lambda: list(planner().waves(chain_pool))
    yield "waves reference", lambda: list(planner(mode="reference").waves(chain_pool))
    yield "waves reference of many", lambda: planner(mode="reference").wave(pool)
    yield "plan of many", lambda: planner().plan(pool, available=1 << 60).to_dict()
    yield "plan of a chain", lambda: planner().plan(chain_pool, available=1 << 60).to_dict()
    yield "signature of many", lambda: planner().signature_of(pool, np.arange(count))

    sizes = {"hidden": 64, "vocab": 1000, "heads": 4, "kv_groups": 2, "head_dim": 16, "ffn": 128}
    tall = waveplan.Model(**sizes, layers=1 << 16)
    yield "resident of many stages", lambda: resident(tall, Topology(pp=1 << 16), Training())
    ranks = itertools.count(1)  # rules bound to a job before are kept
    yield (
        "planner of many stages",
        lambda: Planner(tall, Topology(pp=1 << 16), Training(lora_rank=next(ranks)), "1GiB"),
    )

    yield from files(folder, part, narrow, offsets)


def files(folder: Path, part: Any, narrow: Any, offsets: Any) -> Iterator[tuple[str, Any]]:
    """Reading, and whole commands."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from digest import pools

    from waveplan import Model, Sequences
    from waveplan.cli import main

    np.savez_compressed(folder / "sequences.npz", tokens=narrow, offsets=offsets)
    with (folder / "sequences.jsonl").open("w") as file:
        file.writelines(json.dumps({"tokens": row.tolist()}) + "\n" for row in part)
    table = pa.table({"tokens": pa.ListArray.from_arrays(offsets.astype(np.int32), narrow)})
    pq.write_table(table, folder / "sequences.parquet")
    with pa.ipc.new_file(folder / "sequences.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("npz", "jsonl", "parquet", "arrow"):
        yield f"read .{name}", lambda name=name: Sequences.load(folder / f"sequences.{name}")
    long = folder / "long.jsonl"
    long.write_text('{"tokens": [7' + ",7" * 6_291_400 + "]}\n")
    yield "read the longest line", lambda: Sequences.load(long)
    config = folder / "config.json"
    config.write_text(json.dumps({"hidden_size": 64, "eos": [7] * 5_000_000}))
    yield "read a long config", lambda: refusal(lambda: Model.from_hf(config))

    kept = np.concatenate([row for sequences in pools().values() for row in sequences])
    small = folder / "small.npz"
    bounds = np.append(np.arange(0, len(kept), 400), len(kept))
    np.savez(small, tokens=kept, offsets=bounds)
    model = ["--model", "qwen3.6-35b-a3b", "--available", "70GiB"]
    commands = {
        "demo": ["demo"],
        "plan": ["plan", str(folder / "sequences.npz"), *model],
        "plan explained": [
            "plan",
            str(small),
            *model,
            "--explain",
            "--html",
            str(folder / "a.html"),
        ],
        "plan json": ["plan", str(folder / "sequences.jsonl"), *model, "--json"],
        "price": ["price", "--tokens", str(1 << 26), "--requests", str(1 << 20), *model],
        "rules": ["rules", *model[:2]],
        "check": ["check", str(ROOT / "tests" / "data" / "peaks.json")],
        "bench": ["bench", str(small), *model, "--repeat", "100"],
    }
    for name, words in commands.items():
        yield f"command {name}", lambda words=words: quiet(main, words)
    sizes = ["--cp", "1,2,4,8", "--available", "40GiB,50GiB,60GiB,70GiB"]
    words = ["sweep", str(folder / "sequences.npz"), "--model", "qwen3.6-35b-a3b", *sizes]
    yield "sweep", lambda: quiet(main, words)


def quiet(main: Callable[[list[str]], Any], words: list[str]) -> Any:
    """A command's status; what it says is not printed."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return main(words)
        except SystemExit as left:
            return left.code


def refusal(call: Callable[[], Any]) -> None:
    from waveplan import InputError

    with contextlib.suppress(InputError):
        call()


def interrupts(prefix: str = "") -> None:
    worst: dict[str, float] = {}
    presser = Presser()  # before memory is taken
    with tempfile.TemporaryDirectory() as folder:
        for name, call in calls(Path(folder)):
            if not name.startswith(tuple(prefix.split(","))):
                continue
            whole, late = delays(presser, call, name == "sweep")
            if late:
                worst[name] = max(late)
            told = " ".join(f"{1e3 * one:.0f}" for one in late) or "not stopped"
            print(f"{name:28} takes {whole:6.2f} s, ms after Ctrl-C: {told}", flush=True)
    if worst:
        name = max(worst, key=worst.__getitem__)
        print(f"{len(worst)} calls stopped, at the latest after {1e3 * worst[name]:.0f} ms: {name}")


if __name__ == "__main__":
    interrupts(*sys.argv[1:])
