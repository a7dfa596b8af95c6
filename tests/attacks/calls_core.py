"""Known-good calls of the compiled border."""

from __future__ import annotations

from threading import RLock
from types import SimpleNamespace
from typing import Any

import numpy as np
from judge import Arguments, Call

from waveplan import (
    AssignSettings,
    Planner,
    Requests,
    StageWork,
    Topology,
    Training,
    _core,
    models,
)
from waveplan.recurrent import RecurrentSettings

TOKENS = np.array([5, 6, 7, 8, 5, 6, 9, 5, 6, 7, 8, 2, 2, 2], np.int64)
OFFSETS = np.array([0, 4, 7, 11, 14], np.int64)
ROWS = [TOKENS[OFFSETS[i] : OFFSETS[i + 1]].copy() for i in range(4)]
LENGTHS = np.array([40, 30, 20, 700], np.int64)
PARENTS = np.array([-1, 0, 0, -1], np.int64)
SETTINGS = AssignSettings(block=16, chunk=64)
QWEN = models.get("qwen3.6-35b-a3b")


def tree() -> _core.Tree:
    return _core.build_tree(TOKENS, OFFSETS)


def packing() -> _core.Packing:
    return _core.pack_rows(TOKENS, OFFSETS)


def _stopped(asked: Any) -> bool:
    """Whether a call of tens of milliseconds is stopped."""
    _core.stop_if(asked)
    try:
        for _ in range(3):
            _core.build_tree(np.arange(300_000), np.arange(300_001))
    except KeyboardInterrupt:
        return True
    finally:
        _core.stop_if(None)
    return False


def columns() -> Arguments:
    count = 4
    no = np.zeros(count, np.bool_)
    return {
        "tokens": TOKENS.copy(),
        "offsets": OFFSETS.copy(),
        "targets": np.ones(count, np.bool_),
        "first_target": np.zeros(count, np.int64),
        "label_mask": None,
        "target_width": np.ones(count, np.int64),
        "top_k": np.array([0, 2, 0, 0]),
        "logits": no.copy(),
        "hidden": no.copy(),
        "gradient": np.ones(count, np.bool_),
        "slot": np.array([0, 1, 1, 0]),
        "routed": np.zeros(count, np.int64),
        "item_sizes": np.array([2, 1, 1]),
    }


def pool() -> _core.Pool:
    return _core.Pool(**columns())


def planner(cp: int = 2, **options: Any) -> Planner:
    return Planner(QWEN, Topology(cp=cp), Training(), "24GiB", **options)


PLANNER = planner()


def engine() -> _core.Engine:
    return PLANNER.make_engine(Requests(ROWS))


def engine_arguments() -> Arguments:
    requests = Requests(ROWS)
    return {
        "pool": requests._core,
        "adapter_ranks": [0],
        "program": PLANNER.bound.program,
        "facts": PLANNER._settings,
    }


def session() -> _core.Session:
    return engine().session(0, 24 << 30, None, [])


def grown() -> _core.Session:
    made = session()
    made.agree_growth(made.growth())
    return made


def settled() -> _core.Session:
    made = grown()
    made.agree_bisection(made.bisection())
    return made


def plan() -> _core.Plan:
    return session().alone().plans[0]


def layout_arguments() -> Arguments:
    return {
        "tree": tree(),
        "version": 2,
        "coefficients": [1986, 45, 229, 305, 7, 222742, 152596, 635438, 2920256, 428567],
        "tp": 1,
        "cp": 2,
        "layers": 4,
        "gdn_layers": 2,
        "uses_gdn": True,
        "method": "exact",
        "budget": 100,
        "most_tokens": None,
        "counts": True,
    }


def measures(**changes: Any) -> _core.PlanMeasures:
    return _core.PlanMeasures(pool(), np.arange(4), cp=2, recurrent=True, **changes)


PROFILE = (([0], [True], []), (10.5, 100, 1.0, None, None))


def _call(name: str, function: Any, arguments: Any, *integers: str) -> Call:
    return Call(f"waveplan._core.{name}", lambda: (function, arguments()), integers)


def _method(name: str, method: str, made: Any, arguments: Any, *integers: str) -> Call:
    return Call(
        f"waveplan._core.{name}.{method}",
        lambda: (getattr(made(), method), arguments()),
        integers,
    )


def rows_arguments() -> Arguments:
    return {"tokens": TOKENS.copy(), "offsets": OFFSETS.copy()}


def segments_arguments() -> Arguments:
    return {"lengths": LENGTHS.copy(), "parents": PARENTS.copy()}


def scattered() -> list[np.ndarray]:
    return [row.copy() for row in ROWS]


OWNERS = np.zeros(13, np.int64)

CALLS = [
    _call("build_tree", _core.build_tree, rows_arguments, "tokens", "offsets"),
    _method("Tree", "members", tree, dict),
    _method("Tree", "prefixes", tree, dict),
    _method("Tree", "restrict", tree, lambda: {"rows": np.array([2, 0])}, "rows"),
    _call(
        "pack_rows",
        _core.pack_rows,
        lambda: {
            **rows_arguments(),
            "max_depth": 2,
            "min_shared": 1,
            "shareable": np.array([4, 3, 4, 3]),
        },
        "tokens",
        "offsets",
        "shareable",
    ),
    _call(
        "Packing.from_segments",
        _core.Packing.from_segments,
        segments_arguments,
        "lengths",
        "parents",
    ),
    _method("Packing", "path", packing, lambda: {"row": 1}),
    _method("Packing", "positions", packing, lambda: {"row": 1}),
    _call("tree_of", _core.tree_of, lambda: {"rows": scattered()}),
    _call(
        "pack_of",
        _core.pack_of,
        lambda: {
            "rows": scattered(),
            "max_depth": None,
            "min_shared": 1,
            "shareable": np.array([4, 3, 4, 3]),
        },
        "shareable",
    ),
    _call("hash_rows", _core.hash_rows, lambda: {"rows": scattered(), "key": [1, 2]}),
    _call(
        "gather_tokens", _core.gather_tokens, lambda: {"packing": packing(), "rows": scattered()}
    ),
    _call("packed_ids", _core.packed_ids, lambda: {"packing": packing()}),
    _call("packed_positions", _core.packed_positions, lambda: {"packing": packing()}),
    _call(
        "labelled_tokens",
        _core.labelled_tokens,
        lambda: {"labels": np.array([1, -100, 3, 4]), "tokens": 2},
        "labels",
    ),
    _call(
        "projected_rows",
        _core.projected_rows,
        lambda: {
            "positions": [np.array([0, 1, 2])],
            "labels": [np.array([1, -100, 2])],
            "every": [False],
            "most": 10,
        },
    ),
    _call(
        "target_chunk_rows",
        _core.target_chunk_rows,
        lambda: {
            "positions": [np.array([0, 1, 2])],
            "labels": [np.array([1, -100, 2])],
            "every": [False],
            "chunk": 2,
        },
    ),
    _call("choose_layout", _core.choose_layout, layout_arguments),
    _call(
        "pack_layout",
        _core.pack_layout,
        lambda: {"tree": tree(), "shared": np.zeros(len(tree()), np.bool_)},
    ),
    _call(
        "assign",
        _core.assign,
        lambda: {**segments_arguments(), "ranks": 2, "settings": SETTINGS},
        "lengths",
        "parents",
    ),
    _call(
        "stage_times",
        _core.stage_times,
        lambda: {**segments_arguments(), "ranks": 2, "settings": SETTINGS},
        "lengths",
        "parents",
    ),
    _call(
        "parse_ids",
        _core.parse_ids,
        lambda: {"group_ids": np.array([1, 1, 2, 2, -1]), "parent_ids": np.array([1, 1, 1, 1, -1])},
        "group_ids",
        "parent_ids",
    ),
    _call("attention_slices", _core.attention_slices, segments_arguments, "lengths", "parents"),
    _call(
        "recurrent_settings",
        _core.recurrent_settings,
        lambda: {"shape": [2048, 16, 32, 128, 128, 4, 1]},
    ),
    _call("recurrent_defaults", _core.recurrent_defaults, dict),
    _call(
        "recurrent",
        _core.recurrent,
        lambda: {
            **segments_arguments(),
            "ranks": 2,
            "chunk": 64,
            "owners": OWNERS.copy(),
            "settings": RecurrentSettings(),
        },
        "lengths",
        "parents",
        "owners",
    ),
    _call("gdn_schedule", _core.gdn_schedule, segments_arguments, "lengths", "parents"),
    _call(
        "gdn_schedule_per_rank",
        _core.gdn_schedule_per_rank,
        lambda: {
            **segments_arguments(),
            "ranks": 2,
            "owner": np.array([0, 1, 0, -1]),
            "shards": np.array([350, 350]),
        },
        "lengths",
        "parents",
        "owner",
        "shards",
    ),
    _call(
        "Pool",
        _core.Pool,
        columns,
        "tokens",
        "offsets",
        "first_target",
        "target_width",
        "top_k",
        "slot",
        "routed",
        "item_sizes",
    ),
    _method("Pool", "mixes", pool, dict),
    _call("stop_if", _stopped, lambda: {"asked": None}),
    _call("locked", _core.locked, lambda: {"lock": RLock(), "work": dict}),
    _method("Pool", "labelled", pool, dict),
    _method("Pool", "groups", pool, lambda: {"requests": np.array([0, 2])}, "requests"),
    _call(
        "PlanMeasures",
        _core.PlanMeasures,
        lambda: {
            "pool": pool(),
            "requests": np.arange(4),
            "tp": 1,
            "cp": 2,
            "recurrent": True,
            "gdn_weights": [1, 2, 3],
            "adapter_ranks": [0, 8],
        },
        "requests",
    ),
    _method(
        "PlanMeasures",
        "exact",
        measures,
        lambda: {
            "g": 0,
            "tree": tree().restrict(np.array([0, 3])),
            "shared": np.zeros(2, np.bool_),
            "attention_tokens": np.array([4, 3]),
            "owner": np.array([0, 1]),
            "shards": np.empty(0, np.int64),
            "head_sum": False,
        },
        "attention_tokens",
        "owner",
        "shards",
    ),
    _method("PlanMeasures", "bound", measures, lambda: {"g": 0, "kind": "full", "tokens": 10}),
    _method("PlanMeasures", "finish", measures, lambda: {"even": False}),
    _call(
        "Program",
        _core.Program,
        lambda: {
            "nodes": [("const", [1]), ("plan", [0]), ("+", [0, 1])],
            "factors": [1.5],
            "roots": [2] * len(_core.PRICE_ROOTS),
            "safety": 1.1,
        },
    ),
    _method(
        "Program",
        "evaluate",
        lambda: PLANNER.bound.program,
        lambda: {
            "plan": np.ones(len(_core.PLAN_MEASURES), np.int64),
            "packs": np.ones(2 * len(_core.GROUP_MEASURES), np.int64),
            "width": len(_core.GROUP_MEASURES),
        },
        "plan",
        "packs",
    ),
    _method(
        "Program",
        "every",
        lambda: PLANNER.bound.program,
        lambda: {
            "plan": np.ones(len(_core.PLAN_MEASURES), np.int64),
            "packs": np.ones(2 * len(_core.GROUP_MEASURES), np.int64),
            "width": len(_core.GROUP_MEASURES),
        },
        "plan",
        "packs",
    ),
    _method("Program", "gdn_weights", lambda: PLANNER.bound.program, dict),
    _call(
        "width_search",
        _core.width_search,
        lambda: {
            "items": 9,
            "start": 0,
            "dp": 1,
            "hint": None,
            "composite": False,
            "bits": np.full(200, 3),
        },
        "bits",
    ),
    _call("width_geometry", _core.width_geometry, lambda: {"items": 9, "start": 1, "dp": 2}),
    _call(
        "width_normalize",
        _core.width_normalize,
        lambda: {"items": 9, "start": 1, "dp": 2, "width": 3},
    ),
    _call(
        "split_cut", _core.split_cut, lambda: {"tokens": np.array([3, 4, 5]), "count": 2}, "tokens"
    ),
    _call("Engine", _core.Engine, engine_arguments),
    _method(
        "Engine",
        "session",
        engine,
        lambda: {"start": 0, "available": 24 << 30, "hint": None, "profiles": [PROFILE]},
    ),
    _method(
        "Engine",
        "plan",
        engine,
        lambda: {"requests": np.arange(4), "available": 24 << 30, "profiles": [PROFILE]},
        "requests",
    ),
    _method(
        "Engine",
        "part_costs",
        engine,
        lambda: {"requests": np.arange(4), "profiles": [PROFILE]},
        "requests",
    ),
    _method("Session", "alone", session, dict),
    _method("Session", "set_available", session, lambda: {"available": 1 << 30}),
    _method("Session", "growth_len", session, dict),
    _method("Session", "growth", session, dict),
    _method("Session", "agree_growth", session, lambda: {"agreed": session().growth()}, "agreed"),
    _method("Session", "bisection", session, dict),
    _method("Session", "agree_bisection", grown, lambda: {"agreed": grown().bisection()}, "agreed"),
    _method("Session", "refinement", settled, dict),
    _method("Session", "quote", session, lambda: {"width": 1, "kind": 0}),
    _method("Session", "finish", settled, lambda: {"agreed": np.zeros(0, np.int64)}, "agreed"),
    *(
        _method("Plan", method, plan, lambda: {"g": 0})
        for method in (
            "key",
            "group_requests",
            "shared",
            "layout",
            "tree",
            "packing",
            "assignment",
            "recurrent",
        )
    ),
]


def fields(settings: Any) -> Arguments:
    """An object's public attributes, each to be attacked in turn."""
    names = [name for name in dir(settings) if not name.startswith("_")]
    return {
        name: getattr(settings, name) for name in names if not callable(getattr(settings, name))
    }


def _assign_with(**settings: Any) -> Any:
    return _core.assign(LENGTHS, PARENTS, 2, SimpleNamespace(**settings))


def _stage_times_with(**settings: Any) -> Any:
    return _core.stage_times(LENGTHS, PARENTS, 3, SimpleNamespace(**settings))


def _recurrent_with(**settings: Any) -> Any:
    given = SimpleNamespace(**settings)
    return _core.recurrent(LENGTHS, PARENTS, 2, 64, OWNERS, given)


def _profiled_with(**settings: Any) -> Any:
    stage = SimpleNamespace(**{name: settings.pop(name) for name in fields(StageWork())})
    profile = SimpleNamespace(stages=[stage], **settings)
    given = SimpleNamespace(**{**fields(SETTINGS), "profile": profile})
    return _core.assign(LENGTHS, PARENTS, 2, given)


def _engine_with(**facts: Any) -> Any:
    made = _core.Engine(**{**engine_arguments(), "facts": SimpleNamespace(**facts)})
    found = made.session(0, 24 << 30, None, []).alone()
    return [plan.measures for plan in found.plans], found.required, found.stopped


def _engine_scoring(**scoring: Any) -> Any:
    return _engine_with(**{**fields(PLANNER._settings), "scoring": SimpleNamespace(**scoring)})


def _engine_assign(**assign: Any) -> Any:
    return _engine_with(**{**fields(PLANNER._settings), "assign": SimpleNamespace(**assign)})


def _engine_recurrent(**recurrent: Any) -> Any:
    return _engine_with(**{**fields(PLANNER._settings), "recurrent": SimpleNamespace(**recurrent)})


def _profile(bytes: Any, tokens: Any, sharing: Any, kept: Any, warm: Any) -> Any:
    profile = (([0], [True], []), (bytes, tokens, sharing, kept, warm))
    found = engine().session(0, 24 << 30, None, [profile]).alone()
    return found.required, found.kind


def _curve(peak: Any, fixed: Any, sharing: Any, kept: Any, kept_sharing: Any) -> Any:
    profile = (([0], [True], []), (peak, fixed, sharing, kept, kept_sharing, True))
    found = engine().session(0, 24 << 30, None, [profile]).alone()
    return found.required, found.kind


def _points(tokens: Any, peak: Any, kept_tokens: Any, kept: Any) -> Any:
    return _curve([(tokens, peak), (10, 5)], 0, 1.0, [(kept_tokens, kept)], 1.0)


def _pool_runs(**given: Any) -> Any:
    """A pool of hostile columns, measured."""
    made = _core.Pool(**given)
    count = len(made)
    measured = _core.PlanMeasures(made, np.arange(count))
    for g in range(len(made.groups(np.arange(count)))):
        measured.bound(g, "none")
    return made.labelled(), measured.finish()


def _node(op: Any, first: Any, second: Any, factor: Any, root: Any) -> Any:
    nodes = [("const", [2**40]), ("plan", [0]), ("pack", [1]), ("max_packs", [2])]
    program = _core.Program([*nodes, (op, [first, second])], [factor], [root] * len(ROOTS), 1.1)
    width = len(_core.GROUP_MEASURES)
    plan = np.full(len(_core.PLAN_MEASURES), 2**40)
    return program.evaluate(plan, np.full(2 * width, 2**40), width)


def _nodes() -> list[Call]:
    made = []
    for op in ("+", "-", "//", "ceildiv", "min", "max", "<", "==", "scale"):
        arguments = {"op": op, "first": 0, "second": 0, "factor": 0.5, "root": 4}
        made.append(_call("Program", _node, lambda given=arguments: dict(given)))
    return made


ROOTS = _core.PRICE_ROOTS

CALLS += [
    _call("assign", _assign_with, lambda: fields(SETTINGS)),
    _call("stage_times", _stage_times_with, lambda: fields(SETTINGS)),
    _call("recurrent", _recurrent_with, lambda: fields(RecurrentSettings())),
    _call(
        "assign",
        _profiled_with,
        lambda: {
            **fields(StageWork(1, 2, 3, 4, 5, 6, 7)),
            "query_tile": 16,
            "key_tile": 16,
            "workspace_elements": 1 << 20,
            "max_key_tokens": 1 << 20,
            "max_ranges": 2,
        },
    ),
    _call("Engine", _engine_with, lambda: fields(PLANNER._settings)),
    _call("Engine", _engine_scoring, lambda: fields(PLANNER.scoring)),
    _call("Engine", _engine_assign, lambda: fields(PLANNER._settings.assign)),
    _call("Engine", _engine_recurrent, lambda: fields(RecurrentSettings())),
    _call(
        "Engine.session",
        _profile,
        lambda: {"bytes": 2.0, "tokens": 9, "sharing": 1.0, "kept": 1.0, "warm": (1.0, 9, 1.0)},
    ),
    _call(
        "Engine.session",
        _curve,
        lambda: {
            "peak": [(3, 4)],
            "fixed": 0,
            "sharing": 1.0,
            "kept": [(3, 4)],
            "kept_sharing": 1.0,
        },
    ),
    _call("Engine.session", _points, lambda: {"tokens": 3, "peak": 4, "kept_tokens": 3, "kept": 4}),
    _call(
        "Pool",
        _pool_runs,
        columns,
        *("tokens", "offsets", "first_target", "target_width", "top_k", "slot", "routed"),
    ),
    *_nodes(),
]
