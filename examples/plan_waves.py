"""Plan rollouts in waves and print, for each, its packs and their owners.

python examples/plan_waves.py [FILE] [--available 3GiB]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from waveplan import Budget, Planner, Requests, Sequences, Topology, Training, format_bytes, models

HERE = Path(__file__).parent


def main() -> None:
    """Plan the waves and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", default=str(HERE / "rollouts.jsonl"))
    parser.add_argument("--available", default="3GiB")
    args = parser.parse_args()

    sequences = Sequences.load(args.file)
    # The file says where completions begin: their tokens are labelled, prompts are not.
    targets = sequences.columns.get("first_target", True)
    planner = Planner(
        models.get("qwen3.6-35b-a3b"),
        Topology(cp=2),
        Training(recompute="full", lora_rank=8),
        Budget(available=args.available),
    )
    waves = planner.waves(Requests(sequences, targets=targets), on_refusal="skip")
    for number, wave in enumerate(waves, 1):
        print(f"wave {number}: {wave.width} requests, {format_bytes(wave.required)}")
        for pack in wave.packs:
            saved = 1 - pack.packed_tokens / int(sequences.lengths[pack.requests].sum())
            print(f"  {pack.packed_tokens} packed tokens, {saved:.0%} saved")
            if pack.ownership is not None:
                for rank in range(planner.topology.cp):
                    ranges = pack.ownership.ranges(rank).tolist()
                    print(f"  rank {rank} owns packed tokens {ranges}")
        print(f"  not wider: {wave.stopped}")
    for refused in waves.refused:
        print(f"refused: {refused}")


if __name__ == "__main__":
    main()
