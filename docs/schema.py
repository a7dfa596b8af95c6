"""Writes the JSON Schema of what ``--json`` prints: python docs/schema.py > docs/schema.json

It is made from the tables of docs/json.md, and from the options of a job and a source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from waveplan.desk.jobs import Job
from waveplan.desk.source import Source

PAGE = Path(__file__).parent / "json.md"
EVERY = "Every command"
OF_JSON = ("integer", "number", "string", "boolean", "object", "array", "null")


def tables() -> Iterator[tuple[bool, str, dict[str, Any]]]:
    """Yield of every table of fields whether it is of an object, its name, and its schema."""
    text = PAGE.read_text(encoding="utf-8")
    for level, name, part in re.findall(r"^(##+) (.+)\n([^#]+)", text, re.MULTILINE):
        found, required = {}, []
        for line in re.findall(r"^\| `.*\|$", part, re.MULTILINE):
            _, names, kinds, about, _ = map(str.strip, line.split("|"))
            marked = names.split(", ")
            given = kinds.split(", ")
            for i, mark in enumerate(marked):
                field = mark.strip("`?")
                kind = given[i if len(given) > 1 else 0]
                found[field] = {**typed(kind), "description": about}
                required += [] if mark.endswith("?") else [field]
        if found:
            made = {"type": "object", "properties": found, "required": required}
            yield level == "###", name, made


def typed(kind: str) -> dict[str, Any]:
    """The schema of a value."""
    if " or " in kind:
        return {"anyOf": [typed(one) for one in kind.split(" or ")]}
    if kind.endswith("[]"):
        return {"type": "array", "items": typed(kind[:-2])}
    if kind.startswith("{"):
        return {"type": "object", "additionalProperties": typed(kind[1:-1])}
    return {"type": kind} if kind in OF_JSON else {"$ref": f"#/$defs/{kind}"}


def options(facts: Any) -> dict[str, Any]:
    """The schema of a job or a source."""
    kinds = {"whole": "integer", "tokens": "integer", "share": "number", "switch": "boolean"}
    made = {}
    for item in fields(facts):
        kind = kinds.get(item.metadata.get("kind", "text"), "string")
        made[item.name] = {"type": [kind, "null"], "description": item.metadata.get("doc", "")}
    if "path" in made:
        made["path"] = {"type": ["string", "array"], "description": "the files of sequences"}
    return {"type": "object", "properties": made}


def document() -> dict[str, Any]:
    """The whole schema."""
    found = list(tables())
    (every,) = [made for _, name, made in found if name == EVERY]
    commands = []
    for is_object, name, made in found:
        if is_object or name == EVERY:
            continue
        properties = {**every["properties"], **made["properties"]}
        properties |= {"version": {"const": 1}, "command": {"const": name}}
        commands.append({**made, "properties": properties, "required": every["required"]})
    named = {name: made for is_object, name, made in found if is_object}
    # The fields of a job, and of its outcome over these.
    outcome = named.pop("outcome")["properties"]
    named["result"] = {"type": "object", "properties": {**options(Job)["properties"], **outcome}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What the commands of waveplan print with --json",
        "oneOf": commands,
        "$defs": {"job": options(Job), "source": options(Source), **named},
    }


if __name__ == "__main__":
    print(json.dumps(document(), indent=1))
