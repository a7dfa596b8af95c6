"""The published schema of what --json prints: it holds every document, and every field of one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from waveplan.cli import main

ROOT = Path(__file__).parents[2]
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "schema.json").read_text(encoding="utf-8"))
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
    "boolean": bool, "null": type(None),
}  # fmt: skip


def wrong(schema: dict[str, Any], value: Any, place: str = "") -> list[str]:
    """What of a value a schema does not allow, or does not name."""
    if "$ref" in schema:
        return wrong(SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, place)
    if "anyOf" in schema:
        tried = [wrong(one, value, place) for one in schema["anyOf"]]
        return min(tried, key=len)
    if "const" in schema:
        return [] if value == schema["const"] else [f"{place} is {value}"]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(
        isinstance(value, TYPES[kind])
        and not (isinstance(value, bool) and kind in ("integer", "number"))
        for kind in kinds
    ):
        return [f"{place} is {value!r:.60}, not of {kinds}"]
    found = []
    if isinstance(value, list) and "items" in schema:
        for item in value:
            found += wrong(schema["items"], item, f"{place}[]")
    if isinstance(value, dict) and {"properties", "additionalProperties"} & schema.keys():
        named, other = schema.get("properties", {}), schema.get("additionalProperties")
        found += [
            f"{place}.{name} is missing" for name in schema.get("required", ()) if name not in value
        ]
        for name, item in value.items():
            if name in named or other:
                found += wrong(named.get(name) or other, item, f"{place}.{name}")
            else:
                found.append(f"{place}.{name} is not in the schema")
    return found


MODEL = "--model qwen3.6-35b-a3b"


@pytest.mark.parametrize(
    "line",
    [
        "plan examples/rollouts.jsonl --model examples/config.json --cp 2 --available 800MiB",
        f"plan tests/data/tau_turns_open.npz --limit 60 {MODEL} --gpu H200 --dp 2 --cp 2 --ep 2",
        f"plan examples/rollouts.jsonl {MODEL} --available 3GiB --order free",
        "plan examples/rollouts.jsonl --model qwen3-8b --gpu H100 --padding 64",
        "demo",
        f"price --tokens 4000 {MODEL} --budget 141GB",
        "price --tokens 4000 --model qwen3-8b --tp 2",
        "sweep examples/rollouts.jsonl --model qwen3-0.6b --available 2GiB --jobs 1",
        "inspect examples/verl.jsonl --model qwen3-8b",
        "inspect examples/rollouts.jsonl",
        "rules",
        f"rules {MODEL} --ep 2 --cp 2",
        "models",
        "models --model qwen3-8b",
        "check tests/data/peaks.json",
        "bench examples/rollouts.jsonl --repeat 1",
    ],
)
def test_documents(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main([*line.split(), "--json"]) in (0, 1)
    made = json.loads(capsys.readouterr().out)
    (one,) = [
        part
        for part in SCHEMA["oneOf"]
        if part["properties"]["command"]["const"] == made["command"]
    ]
    assert not wrong(one, made)
    whole = {name: made[name] for name in ("version", "command")}
    assert not wrong(one, {**whole, "complete": False})
    assert wrong(one, whole)
    assert wrong(one, {**made, "version": "1", "new": 0})


def test_the_schema_is_fresh() -> None:
    script = ROOT / "docs" / "schema.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == SCHEMA
