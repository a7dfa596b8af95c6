"""Count the instructions of six fixed pieces of work; other load on a machine changes none.

    python benches/instructions.py            # counts them, writes benches/instructions.json
    python benches/instructions.py --check    # compares with the kept counts, fails beyond 5%

Needs cargo and valgrind (callgrind). Counts depend on the compiler: a newer one may need new
counts, with the reason in the commit.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = HERE / "instructions.json"
WORK = ("requests", "tree", "layout", "ownership", "fastest", "search")
TOLERANCE = 0.05


def build() -> Path:
    """Build the program that does the work; return its path."""
    command = ["cargo", "build", "--quiet", "--locked", "--profile", "counted"]
    command += ["--example", "instructions", "--message-format", "json"]
    done = subprocess.run(command, cwd=HERE.parent, check=True, capture_output=True, text=True)
    made = [json.loads(line) for line in done.stdout.splitlines()]
    return Path(next(one["executable"] for one in reversed(made) if one.get("executable")))


def count(program: Path, name: str) -> dict[str, int]:
    """Count the instructions of one piece of work; return them and its answer."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command += [f"--toggle-collect=*measured_{name}*", str(program), name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None or int(found[1]) == 0:
        raise SystemExit(f"{name}: callgrind counted nothing\n{done.stderr}")
    return {"instructions": int(found[1]), "answer": int(done.stdout.split()[1])}


def main() -> int:
    """Count, then keep or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the kept counts")
    args = parser.parse_args()
    program = build()
    made = {name: count(program, name) for name in WORK}
    if not args.check:
        KEPT.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(made, indent=1))
        return 0
    kept, wrong = json.loads(KEPT.read_text(encoding="utf-8")), 0
    for name in WORK:
        now, before = made[name], kept[name]
        change = now["instructions"] / before["instructions"] - 1
        verdict = "ok"
        if now["answer"] != before["answer"]:
            verdict = f"ANSWER {now['answer']} instead of {before['answer']}"
        elif abs(change) > TOLERANCE:
            verdict = f"beyond {TOLERANCE:.0%}: find out why, or keep the new counts"
        wrong += verdict != "ok"
        print(f"{name:12} {now['instructions']:>14,} instructions {change:+.1%}  {verdict}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
