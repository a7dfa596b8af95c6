"""Writes the JSON Schema of what ``--json`` prints: python docs/schema.py > docs/schema.json

An object is a line of "names: type" with semicolons between; names that end with ? may be absent.
``integer[]`` is a list, ``{integer}`` an object of any keys, ``#plan`` an object named here. What
fields hold is in docs/json.md; those of a job and a source are described by their options.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from waveplan.desk.jobs import Job
from waveplan.desk.source import Source
from waveplan.desk.sweep import Outcome

NAMED = {
    "model": "text family dtype quantized: string; notes layers not_counted: string[]; "
    "parameters: integer; facts?: object; model?: string",
    "doubt": "rule state reason: string",
    "memory": "device reserve before_margin margin available wave free: integer|null; "
    "resident colocated: integer; resident_kinds: {integer}; resident_terms: #term[]",
    "term": "name why state: string; bytes: integer",
    "plan": "version required packed_tokens logical_tokens output_bytes: integer; "
    "fingerprint: string; forwards: #forward[]",
    "forward": "mode: string; required: integer; requests: integer[]; packs: #pack[]; "
    "measures: #measures",
    "measures": "plan: {integer}; packs: {integer}[]",
    "pack": "adapter: string|null; gradient routed: boolean; balance time_ms?: number; "
    "packed_tokens saved_tokens decisions shared_decisions depth chunk?: integer; "
    "requests lengths parents sequence_starts rank_tokens owners? gdn_owner?: integer[]; "
    "stages?: integer[]; ownership?: #ownership",
    "ownership": "method: string; score bound: number; optimal: boolean; "
    "most_ranges most_tokens: integer",
    "probe": "width requests packed_tokens required: integer; kind: string; fits trusted: boolean",
    "stopped": "kind text: string; width: integer",
    "share": "width start dp_rank required available rejected: integer; indices: integer[]; "
    "cold: boolean; doubtful: string[]; probes: #probe[]; stopped: #stopped; plan: #plan",
    "wave": "width start dp_rank required available rejected: integer; indices: integer[]; "
    "cold: boolean; doubtful: string[]; probes: #probe[]; stopped: #stopped; plan: #plan; "
    "requests logical_tokens packed_tokens busiest: integer; rank_tokens: integer[]; "
    "balance dp_tokens dp_time time_ms: number; shares?: #share[]",
    "refusal": "required available packed_tokens logical_tokens: integer; indices: integer[]; "
    "dp_rank: integer|null; message: string; attempts: #attempt[]; change: #change[]",
    "attempt": "parts required: integer; kind: string",
    "change": "kind: string; value: integer",
    "bound": "waves packed_tokens: integer; ms: number; composition?: #composition",
    "composition": "total_ms keep_ms gap: number; keep_waves version: integer; "
    "by fingerprint: string",
    "price": "required estimate margin stage: integer; rules phase term: string; "
    "results terms: {integer}; doubtful: #doubt[]; tree: #branch",
    "branch": "name kind: string; bytes: integer; how? why?: string; pack?: integer; "
    "binding?: boolean; factor?: number; children?: #branch[]",
    "record": "id class model ranks state note: string; below_parity: boolean; "
    "local_tokens observed estimate required resident: integer; "
    "estimate_ratio required_ratio: number; states states_observed: integer|null; "
    "withheld_ratio reference_estimate_ratio reference_required_ratio: number|null; "
    "balanced_required_ratio: number|null; uncharged unmeasured: string[]",
    "class": "class: string; records: integer; estimate required: array; "
    "withheld reference_required balanced_required: array|null; "
    "below_parity outside_target: string[]",
    "unpriced": "id reason: string",
    "rule": "name lives bytes where checked applies why source state? reason?: string; "
    "reference: object|null",
    "lengths": "min median max: integer; mean: number; longest: string; histogram: #span[]",
    "span": "from to sequences: integer",
    "sharing": "packed_tokens: integer; saved: number",
    "empty": "sequences: integer; places: string[]",
    "megatron": "read: string[]; refused: {string}",
}
JOB = "job?: #job|null; model?: #model|null; "
COMMANDS = {
    "plan": f"{JOB}source?: #source; memory?: #memory; doubtful?: #doubt[]; waves?: #wave[]; "
    "bound?: #bound|null; refused?: #refusal[]; empty?: string[]; pads?: integer",
    "price": f"{JOB}memory?: #memory; doubtful?: #doubt[]; fits?: boolean|null; dp_rank?: integer; "
    "empty?: string[]; plan?: #plan; price?: #price",
    "sweep": "source?: #source; models?: #model[]; results?: #result[]; assumed?: string; "
    "best?: integer[]",
    "inspect": "model?: #model|null; source?: #source; files? labels? unused? odd?: string[]; "
    "columns?: {string}; sequences? tokens? labelled? pads?: integer; groups?: integer|null; "
    "lengths?: #lengths; sharing?: #sharing; empty?: #empty",
    "rules": f"{JOB}rules?: #rule[]",
    "models": "bundled?: {string}; families?: string[]; model?: #model; megatron?: #megatron",
    "check": "rules?: string; classes?: #class[]; records?: #record[]; slopes?: array; "
    "unpriced?: #unpriced[]",
    "bench": f"{JOB}source?: #source; seconds?: {{number}}; peer?: array",
}


def named(line: str) -> dict[str, Any]:
    """The schema of an object."""
    found, required = {}, []
    for part in line.split("; "):
        names, _, kind = part.partition(": ")
        for name in names.split():
            found[name.removesuffix("?")] = typed(kind)
            required += [] if name.endswith("?") else [name]
    return {"type": "object", "properties": found, "required": required}


def typed(kind: str) -> dict[str, Any]:
    """The schema of a value."""
    if kind.endswith("[]"):
        return {"type": "array", "items": typed(kind[:-2])}
    if kind.startswith("{"):
        return {"type": "object", "additionalProperties": typed(kind[1:-1])}
    if kind.startswith("#"):
        name, _, null = kind[1:].partition("|")
        made = {"$ref": f"#/$defs/{name}"}
        return {"anyOf": [made, {"type": "null"}]} if null else made
    return {"type": kind.split("|") if "|" in kind else kind}


def options(facts: Any) -> dict[str, Any]:
    """The schema of a job or a source."""
    kinds = {"whole": "integer|null", "share": "number", "switch": "boolean|null"}
    made = {}
    for item in fields(facts):
        kind = kinds.get(item.metadata.get("kind", "text"), "string|null")
        made[item.name] = typed(kind) | {"description": item.metadata.get("doc", "")}
    if "path" in made:
        made["path"] = {"type": ["string", "array"], "description": "the files of sequences"}
    return {"type": "object", "properties": made}


def result() -> dict[str, Any]:
    """The schema of a row of a sweep: the fields of its job, and of its outcome over these."""
    kinds = {"int": "integer", "float": "number", "str": "string"}
    made = {item.name: typed(kinds[str(item.type)]) for item in fields(Outcome)}
    job = {name: {"type": one["type"]} for name, one in options(Job)["properties"].items()}
    return {"type": "object", "properties": {**job, **made}}


def document() -> dict[str, Any]:
    """The whole schema."""
    commands = []
    for name, parts in COMMANDS.items():
        made = named(f"version: integer; command: string; complete: boolean; {parts}")
        made["properties"] |= {"version": {"const": 1}, "command": {"const": name}}
        commands.append(made)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What a command of waveplan prints with --json",
        "description": "After Ctrl-C complete is false, and fields that were not reached are "
        "absent. Fields are only added within a version.",
        "oneOf": commands,
        "$defs": {
            "job": options(Job),
            "source": options(Source),
            "result": result(),
            **{name: named(line) for name, line in NAMED.items()},
        },
    }


if __name__ == "__main__":
    print(json.dumps(document(), indent=1))
