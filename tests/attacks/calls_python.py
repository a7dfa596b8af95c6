"""Known-good calls of the Python library: one at least for every public function and method."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import fields as fields_of
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from calls_core import LENGTHS, OFFSETS, PARENTS, ROWS, SETTINGS, TOKENS
from judge import Arguments, Call

import waveplan
from waveplan import (
    Alone,
    AssignSettings,
    Budget,
    Model,
    Packing,
    Planner,
    RecurrentSettings,
    Requests,
    Rows,
    Scoring,
    StageWork,
    Topology,
    Training,
    Tree,
    WorkloadProfile,
    adapters,
    assignment,
    facts,
    hf,
    jobs,
    megatron,
    models,
    parameters,
    pricing,
    profiles,
    scoring,
    sweep,
)
from waveplan.integrations import art
from waveplan.plan import Plan
from waveplan.pricing import resident
from waveplan.rows import Ragged
from waveplan.waves import Waves

DENSE = Model(
    hidden=64, layers=4, vocab=1000, heads=4, kv_groups=2, head_dim=16, ffn=128, name="small"
)
HYBRID = Model(
    hidden=64,
    layers=4,
    vocab=1000,
    heads=4,
    kv_groups=2,
    head_dim=16,
    experts=8,
    topk=2,
    expert_ffn=32,
    shared_ffn=32,
    layer_kinds=("gdn", "gdn", "gdn", "attention"),
    gdn_key_heads=4,
    gdn_value_heads=8,
    gdn_key_dim=16,
    gdn_value_dim=16,
    gdn_conv=4,
)
FREE = "24GiB"

FOLDER = tempfile.TemporaryDirectory()
"""Files that calls read. Calls are made before any test runs, wherever pytest was started."""


def rows() -> Rows:
    return Rows(TOKENS.copy(), OFFSETS.copy())


def made_tree() -> Tree:
    return waveplan.tree(rows())


def packed() -> Packing:
    return Packing.from_segments(LENGTHS, PARENTS)


def assigned() -> waveplan.Assignment:
    return waveplan.assign(packed(), 2, SETTINGS)


def placed() -> waveplan.Recurrent:
    return waveplan.recurrent(packed(), assigned())


def requests() -> Requests:
    return Requests(ROWS)


def planner(**options: Any) -> Planner:
    return Planner(HYBRID, Topology(cp=2), Training(), FREE, **options)


PLANNER = planner()


def waves() -> Waves:
    return planner().waves(requests())


def wave() -> waveplan.Wave:
    return waves().plan_next()


def plan() -> Plan:
    return PLANNER.plan(requests())


def bound() -> pricing.BoundRules:
    return PLANNER.bound


def measures() -> pricing.Measures:
    return plan().measures


SIGNATURE = profiles.Signature("tp1", ("target:single",), (True,))
SEEN = profiles.Observation(100, 200, 10, 1 << 30, 1 << 20)


def known() -> profiles.Profiles:
    made = profiles.Profiles()
    made.observe(SIGNATURE, SEEN)
    return made


def fields(value: Any) -> Arguments:
    """The fields of a dataclass by name."""
    return {field.name: getattr(value, field.name) for field in fields_of(value) if field.init}


CONFIG = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "vocab_size": 1000,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "intermediate_size": 128,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "tie_word_embeddings": False,
    "attention_bias": False,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "layer_types": ["full_attention"] * 4,
}
HYBRID_CONFIG = {
    **{key: value for key, value in CONFIG.items() if key not in ("layer_types", "model_type")},
    "model_type": "qwen3_next",
    "full_attention_interval": 4,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "shared_expert_intermediate_size": 32,
    "mtp_num_hidden_layers": 1,
    "text_config": None,
    "_name_or_path": "small",
}
LATENT_CONFIG = {
    **CONFIG,
    "model_type": "deepseek_v3",
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "num_nextn_predict_layers": 1,
}
MEGATRON = {
    "num_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 16,
    "vocab_size": 1000,
    "ffn_hidden_size": 128,
    "num_experts": 8,
    "moe_router_topk": 2,
    "moe_ffn_hidden_size": 32,
    "moe_layer_freq": "([0]*1+[1]*3)",
    "moe_token_dispatcher_type": "alltoall",
    "linear_attention_freq": 4,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "tensor_model_parallel_size": 1,
    "context_parallel_size": 2,
    "pipeline_model_parallel_size": 1,
    "expert_model_parallel_size": 2,
    "expert_tensor_parallel_size": 1,
    "world_size": 4,
    "recompute_granularity": "full",
    "recompute_method": "uniform",
    "recompute_num_layers": 1,
    "recompute_modules": None,
    "normalization": "RMSNorm",
    "swiglu": True,
    "bf16": True,
    "mtp_num_layers": 0,
}


def _from_config(**config: Any) -> Model:
    return Model.from_hf(config)


def _from_arguments(**arguments: Any) -> Any:
    return megatron.read(arguments)


def _words(**arguments: Any) -> Any:
    """An argv of hostile words."""
    argv = []
    for name, value in arguments.items():
        if value is not None and value is not False:
            argv += [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
    return Model.from_megatron(argv)


def _plan_with(
    model: Model = DENSE,
    topology: Topology | None = None,
    training: Training | None = None,
    **options: Any,
) -> Any:
    made = Planner(model, topology or Topology(), training or Training(), FREE, **options)
    return made.wave(requests()).to_dict()


def _planned_model(**sizes: Any) -> Any:
    model = Model(**sizes)
    return model, _plan_with(model)


def _planned_topology(**sizes: Any) -> Any:
    topology = Topology(**sizes)
    return topology, str(topology), _plan_with(HYBRID, topology)


def _planned_training(**options: Any) -> Any:
    training = Training(**options)
    return training, _plan_with(HYBRID, Topology(cp=2), training)


def _planned_budget(**options: Any) -> Any:
    budget = Budget(**options)
    return budget, Planner(DENSE, Topology(), Training(), budget).wave(requests())


def _planned_assign(**settings: Any) -> Any:
    return _plan_with(DENSE, Topology(cp=2), assign=AssignSettings(**settings))


def _planned_scoring(**options: Any) -> Any:
    return _plan_with(DENSE, Topology(cp=2), scoring=Scoring(**options))


def _planned_rows(**columns: Any) -> Any:
    given = Rows(**columns)
    wave = PLANNER.wave(given)
    return given, wave, wave.stopped, wave.to_dict()


def _planned_requests(**options: Any) -> Any:
    pool = Requests(**options)
    plan = PLANNER.plan(pool)
    return pool, plan, repr(pool), pool.mixes, pool.groups(), plan.to_dict()


def _planned_profile(**values: Any) -> Any:
    """A planner that holds a profile read from hostile values."""
    made = planner()
    pool = requests()
    signature = made.signature_of(pool)
    data = profiles.Profiles().to_dict()
    entry = {
        "context": signature.context,
        "mixes": list(signature.mixes),
        "gradients": list(signature.gradients),
        "adapters": [],
    }
    data["profiles"] = [{"signature": entry, "profile": values}]
    made.profiles = profiles.Profiles.from_dict(data)
    return made.wave(pool).required


def _planned_rates(**values: Any) -> Any:
    made = planner(compatible=True)
    pool = requests()
    data = profiles.Profiles(published=True).to_dict()
    signature = json.loads(json.dumps(fields(made.signature_of(pool))))
    data["profiles"] = [{"signature": signature, "profile": values}]
    made.profiles = profiles.Profiles.from_dict(data)
    return made.wave(pool).required


def _planned_signature(**values: Any) -> Any:
    data = known().to_dict()
    data["profiles"][0]["signature"] = values
    return profiles.Profiles.from_dict(data)


def _observed(**seen: Any) -> Any:
    made = known()
    observation = profiles.Observation(**seen)
    made.observe(SIGNATURE, observation)
    return observation, made.to_dict()


def _laid_out(**options: Any) -> Any:
    return waveplan.choose_layout(made_tree(), Scoring(**options))


def _assigned(**settings: Any) -> Any:
    return waveplan.assign(packed(), 2, AssignSettings(**settings))


def _profiled(**sizes: Any) -> Any:
    return waveplan.assign(packed(), 2, AssignSettings(profile=WorkloadProfile(**sizes)))


def _placed(**settings: Any) -> Any:
    return waveplan.recurrent(packed(), assigned(), RecurrentSettings(**settings))


def _fact(**changed: Any) -> Any:
    return pricing.bind_facts(changed).results(pricing.Measures.of())


def _measured(**plan: Any) -> Any:
    return pricing.price(pricing.Measures.of(plan), bound()).to_dict()


def _measured_groups(**group: Any) -> Any:
    return pricing.price(pricing.Measures.of({}, [group]), bound()).to_dict()


class Lies:
    """Another process's answer is whatever an attack says."""

    def __init__(self, answer: Any, size: Any = 2, rank: Any = 0, dp_rank: Any = 0) -> None:
        self.answer, self.size, self.rank, self.dp_rank = answer, size, rank, dp_rank

    def all_min(self, values: Any) -> Any:
        return values if isinstance(self.answer, str) else self.answer

    all_max = all_min


def _agreed(**lies: Any) -> Any:
    made = planner(agreement=Lies(**lies))
    return made.wave(requests())


def _job(**options: Any) -> Any:
    return jobs.Job(**options).planner().limit


def _source(**options: Any) -> Any:
    return jobs.Source(**options).requests()


def job() -> jobs.Job:
    return jobs.Job(model="qwen3-4b", available="70GiB")


def file(name: str, write: Callable[[Path], object]) -> str:
    """A file of that name, written where there is none yet."""
    path = Path(FOLDER.name, name)
    if not path.exists():
        write(path)
    return str(path)


def rows_file() -> str:
    return file("rows.npz", lambda path: np.savez(path, tokens=TOKENS, offsets=OFFSETS))


def source() -> jobs.Source:
    return jobs.Source(path=rows_file())


class Now:
    """An executor that runs at once."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        from concurrent.futures import Future

        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


def _swept(executor: Any, **given: Any) -> Any:
    """Without processes of its own."""
    return sweep.sweep(executor=Now() if executor is None else executor, **given)


def _outcomes(executor: Any, **given: Any) -> Any:
    return sweep.outcomes(executor=Now() if executor is None else executor, **given)


def rule_set() -> pricing.RuleSet:
    return pricing.default_rules()


RULE = pricing.Rule("my.buffer", "local_tokens * hidden * 2 * B")


def _rule(**parts: Any) -> Any:
    rule = pricing.Rule(**parts)
    return rule, rule_set().with_rule(rule)


def _in_step(agreement: Any) -> Any:
    with waveplan.in_step(agreement):
        pass


def _call(
    name: str, function: Any, arguments: Any, *columns: str, raises: tuple[Any, ...] = ()
) -> Call:
    return Call(f"waveplan.{name}", lambda: (function, arguments()), columns, raises=raises)


def _method(name: str, made: Any, arguments: Any, *columns: str) -> Call:
    method = name.rpartition(".")[2]
    return Call(f"waveplan.{name}", lambda: (getattr(made(), method), arguments()), columns)


def _of_columns(name: str, function: Any) -> Call:
    """A function of a packed row, given as its two columns."""
    return _call(
        name,
        lambda **columns: function(SimpleNamespace(**columns)),
        lambda: {"lengths": LENGTHS.copy(), "parents": PARENTS.copy()},
        "lengths",
        "parents",
    )


def given(**arguments: Any) -> Callable[[], Arguments]:
    """The same arguments each time."""
    return lambda: dict(arguments)


INDEX = (IndexError, TypeError)
"""How a sequence refuses an index."""

ROW_CALLS = [
    _call(
        "rows.Rows",
        Rows,
        lambda: {
            "tokens": TOKENS.copy(),
            "offsets": OFFSETS.copy(),
            "columns": {"group": np.arange(4)},
        },
        "tokens",
        "offsets",
    ),
    _call(
        "rows.Rows",
        _planned_rows,
        lambda: {"tokens": TOKENS.copy(), "offsets": OFFSETS.copy()},
        "tokens",
        "offsets",
    ),
    _call("rows.Rows.from_any", Rows.from_any, lambda: {"rows": [row.copy() for row in ROWS]}),
    _call(
        "rows.Rows.from_any",
        lambda row: Rows.from_any([row, [1, 2]]),
        lambda: {"row": ROWS[0].copy()},
        "row",
    ),
    _call("rows.Rows.load", Rows.load, lambda: {"path": rows_file()}),
    _method("rows.Rows.take", rows, lambda: {"indices": np.array([1, 0, -1])}, "indices"),
    _method("rows.Rows.check_tokens", rows, dict),
    _call("rows.Rows", lambda index: rows()[index], given(index=1), raises=INDEX),
    _call(
        "rows.Ragged", lambda index: Ragged(TOKENS, OFFSETS)[index], given(index=1), raises=INDEX
    ),
    _call(
        "rows.integers",
        waveplan.rows.integers,
        lambda: {"name": "tokens", "values": TOKENS.copy()},
        "values",
    ),
    _call("tree.tree", waveplan.tree, lambda: {"rows": [row.copy() for row in ROWS]}),
    _method("tree.Tree.packed", made_tree, given(rows=2)),
    _method("tree.Tree.restrict", made_tree, lambda: {"rows": np.array([2, 0])}, "rows"),
    _call(
        "packing.pack",
        waveplan.pack,
        lambda: {
            "rows": [row.copy() for row in ROWS],
            "max_depth": 3,
            "min_shared": 1,
            "shareable": np.array([4, 3, 4, 3]),
        },
        "shareable",
    ),
    _call(
        "packing.Packing.from_segments",
        Packing.from_segments,
        lambda: {"lengths": LENGTHS.copy(), "parents": PARENTS.copy()},
        "lengths",
        "parents",
    ),
    _call(
        "packing.Packing.from_ids",
        Packing.from_ids,
        lambda: {"group_ids": np.array([1, 1, 2, 2, -1]), "parent_ids": np.array([1, 1, 1, 1, -1])},
        "group_ids",
        "parent_ids",
    ),
    _method("packing.Packing.path", lambda: waveplan.pack(ROWS), given(row=1)),
    _method("packing.Packing.positions", lambda: waveplan.pack(ROWS), given(row=1)),
    _call(
        "requests.Requests",
        _planned_requests,
        lambda: {
            "rows": [row.copy() for row in ROWS],
            "targets": np.array([0, 1, 2, 3]),
            "top_k": [None, 2, None, 1],
            "logits": np.array([False, True, False, False]),
            "hidden": False,
            "gradient": True,
            "adapter": [None, "a", "b", None],
            "items": np.array([2, 1, 1]),
            "routed": np.array([0, 0, 1, 0]),
        },
        "targets",
        "items",
        "routed",
    ),
    _call(
        "requests.Requests",
        lambda labels: Requests(ROWS, targets=[labels, True, None, 0]).labelled,
        lambda: {"labels": np.array([5, -100, 7, 8])},
        "labels",
    ),
    _method("requests.Requests.groups", requests, lambda: {"indices": np.array([1, 0])}, "indices"),
]
LAYOUT_CALLS = [
    _call(
        "layout.choose_layout",
        waveplan.choose_layout,
        lambda: {
            "tree": made_tree(),
            "scoring": PLANNER.scoring,
            "method": "exact",
            "most_tokens": 14,
            "budget": 10,
        },
    ),
    _call(
        "layout.choose_layout",
        waveplan.choose_layout,
        lambda: {
            "tree": made_tree(),
            "scoring": PLANNER.scoring,
            "method": "compatible",
            "budget": 10,
        },
    ),
    _call("layout.Score", waveplan.Score, given(work=1, tokens=2, segments=3, depth=4)),
    _method(
        "layout.Layout.pack", lambda: waveplan.choose_layout(made_tree(), PLANNER.scoring), dict
    ),
    _call(
        "scoring.Scoring",
        _laid_out,
        lambda: fields(Scoring.from_table("dense-h2560", layers=4, cp=2)),
    ),
    _call(
        "scoring.Scoring",
        _planned_scoring,
        lambda: fields(Scoring.from_table("dense-h2560", layers=4, cp=2)),
    ),
    _call(
        "scoring.Scoring.from_table",
        Scoring.from_table,
        given(table="dense-h2560", layers=4, gdn_layers=1, tp=1, cp=1),
    ),
    _call(
        "scoring.Scoring.select",
        Scoring.select,
        lambda: {"model": DENSE, "topology": Topology(), "device": scoring.H200, "gradient": True},
    ),
    _call(
        "scoring.Device",
        lambda **given: (
            scoring.Device(**given),
            Scoring.select(DENSE, Topology(), device=scoring.Device(**given)),
        ),
        given(capability=(9, 0), memory=141 * 10**9),
    ),
    _call(
        "scoring.Geometry",
        lambda **sizes: scoring.TABLES[0].admits(
            scoring.H200, "bfloat16", scoring.Geometry(**sizes), scoring.Shape()
        ),
        lambda: fields(scoring.Geometry.of(DENSE)),
    ),
    _call("scoring.Geometry.of", scoring.Geometry.of, given(model=DENSE)),
    _call(
        "scoring.Shape",
        lambda **sizes: scoring.TABLES[0].admits(
            scoring.H200, "bfloat16", scoring.Geometry.of(DENSE), scoring.Shape(**sizes)
        ),
        given(tp=1, cp=1, ep=1, etp=1),
    ),
    _call(
        "scoring.Table.admits",
        scoring.TABLES[0].admits,
        lambda: {
            "device": scoring.H200,
            "dtype": "bfloat16",
            "geometry": scoring.Geometry.of(DENSE),
            "shape": scoring.Shape(),
        },
    ),
    _call(
        "assignment.assign",
        waveplan.assign,
        lambda: {"packing": packed(), "cp": 2, "settings": SETTINGS, "method": "compatible"},
    ),
    _call(
        "assignment.assign",
        lambda **columns: waveplan.assign(SimpleNamespace(**columns), 2),
        lambda: {"lengths": LENGTHS.copy(), "parents": PARENTS.copy()},
        "lengths",
        "parents",
    ),
    _call("assignment.AssignSettings", _assigned, lambda: fields(AssignSettings())),
    _call("assignment.AssignSettings", _planned_assign, lambda: fields(AssignSettings())),
    _call("assignment.StageWork", StageWork, lambda: fields(StageWork(1, 2, 3, 4, 5, 6, 7))),
    _call(
        "assignment.WorkloadProfile",
        _profiled,
        lambda: {
            "stages": (StageWork(1, 2, 3, 4, 5, 6, 7),),
            "query_tile": 16,
            "key_tile": 16,
            "workspace_elements": 1 << 20,
            "max_key_tokens": 1 << 20,
            "max_ranges": 2,
        },
    ),
    _method("assignment.Assignment.ranges", assigned, given(rank=1)),
    _call(
        "assignment.stage_times",
        assignment.stage_times,
        lambda: {"packing": packed(), "cp": 2, "settings": SETTINGS},
    ),
    _call("assignment.attention_slices", waveplan.attention_slices, lambda: {"packing": packed()}),
    _of_columns("assignment.attention_slices", waveplan.attention_slices),
    _call(
        "assignment.owned_token_ms",
        waveplan.owned_token_ms,
        given(hidden=64, ffn=128, topk=2, expert_ffn=32, shared_ffn=32, tp=1, ep=1, etp=1),
    ),
    _call("recurrent.RecurrentSettings", _placed, lambda: fields(RecurrentSettings())),
    _call("recurrent.RecurrentSettings.of", RecurrentSettings.of, given(model=HYBRID, tp=2)),
    _call(
        "recurrent.RecurrentSettings.from_shape",
        RecurrentSettings.from_shape,
        given(
            hidden=64, key_heads=4, value_heads=8, key_dim=16, value_dim=16, conv=4, tp=2, branch=3
        ),
    ),
    _call(
        "recurrent.recurrent",
        waveplan.recurrent,
        lambda: {"packing": packed(), "assignment": assigned(), "settings": RecurrentSettings()},
    ),
    _call(
        "recurrent.recurrent",
        lambda **columns: waveplan.recurrent(packed(), SimpleNamespace(**columns)),
        lambda: {
            "rank_tokens": assigned().rank_tokens,
            "chunk": assigned().chunk,
            "owners": assigned().owners,
        },
        "rank_tokens",
        "owners",
    ),
    _call("recurrent.gdn_schedule", waveplan.gdn_schedule, lambda: {"packing": packed()}),
    _of_columns("recurrent.gdn_schedule", waveplan.gdn_schedule),
    _call(
        "recurrent.gdn_schedule_per_rank",
        waveplan.gdn_schedule_per_rank,
        lambda: {"packing": packed(), "placement": placed()},
    ),
    _call(
        "recurrent.gdn_schedule_per_rank",
        lambda **columns: waveplan.gdn_schedule_per_rank(packed(), SimpleNamespace(**columns)),
        lambda: {
            "rank_tokens": placed().rank_tokens,
            "owner": placed().owner,
            "shards": placed().shards,
        },
        "owner",
    ),
]
MODEL_CALLS = [
    _call("model.Model", _planned_model, lambda: fields(DENSE)),
    _call("model.Model", _planned_model, lambda: fields(HYBRID)),
    _method("model.Model.gap", lambda: HYBRID, given(kind="gdn")),
    _method("model.Model.to_dict", lambda: HYBRID, dict),
    _call("model.Model.from_hf", Model.from_hf, given(config=CONFIG)),
    _call("model.Model.from_hf", _from_config, lambda: dict(CONFIG)),
    _call("model.Model.from_hf", _from_config, lambda: dict(HYBRID_CONFIG)),
    _call("model.Model.from_hf", _from_config, lambda: dict(LATENT_CONFIG)),
    _call("hf.read", hf.read, given(config=CONFIG)),
    _call("model.Model.from_megatron", Model.from_megatron, given(arguments=MEGATRON)),
    _call("model.Model.from_megatron", _words, lambda: dict(MEGATRON)),
    _call("megatron.read", megatron.read, given(arguments=MEGATRON, world=4)),
    _call("megatron.read", _from_arguments, lambda: dict(MEGATRON)),
    _call("models.get", models.get, given(name="qwen3-4b")),
    _call("models.names", models.names, dict),
    _call("parameters.count", parameters.count, given(model=HYBRID)),
    _call("parameters.layer_parts", parameters.layer_parts, given(model=HYBRID)),
    _method("parameters.Parameters.to_dict", lambda: parameters.count(HYBRID), dict),
    _call("topology.Topology", _planned_topology, lambda: fields(Topology())),
    _call(
        "topology.Topology",
        _planned_topology,
        lambda: fields(Topology(dp=2, tp=2, cp=2, ep=2, etp=2, sequence_parallel=True)),
    ),
    _method("topology.Topology.check", Topology, given(model=DENSE)),
    _call("training.Training", _planned_training, lambda: fields(Training())),
    _method("training.Training.optimizer_state_bytes", Training, given(parameter_bytes=2)),
    _call("budget.parse_bytes", waveplan.parse_bytes, given(value="70 GiB", name="bytes")),
    _call("budget.format_bytes", waveplan.format_bytes, given(value=1 << 40, decimal=True)),
    _call(
        "budget.Budget",
        _planned_budget,
        given(device="80GiB", resident="1GiB", reserve=0.03, available=None),
    ),
    _call(
        "budget.Budget",
        _planned_budget,
        given(device=None, resident=None, reserve=0.03, available="70GiB"),
    ),
    _method("budget.Budget.limit", lambda: Budget(device="80GiB"), given(resident=1 << 30)),
    _call(
        "facts.facts",
        facts.facts,
        given(model=HYBRID, topology=Topology(), training=Training(), stage=0),
    ),
    _call(
        "adapters.layer_adapters",
        adapters.layer_adapters,
        given(model=HYBRID, training=Training(), kind="gdn", moe=True),
    ),
    _call(
        "adapters.layer_elements",
        adapters.layer_elements,
        given(model=HYBRID, topology=Topology(), training=Training(), kind="gdn", moe=True),
    ),
    _call(
        "pricing.resident.resident",
        resident.resident,
        given(model=HYBRID, topology=Topology(), training=Training()),
    ),
    _method(
        "pricing.resident.Resident.explain",
        lambda: resident.resident(HYBRID, Topology(), Training()),
        dict,
    ),
    _method(
        "pricing.resident.Resident.to_dict",
        lambda: resident.resident(HYBRID, Topology(), Training()),
        dict,
    ),
]
PRICE_CALLS = [
    _call(
        "pricing.bind",
        pricing.bind,
        lambda: {
            "model": HYBRID,
            "topology": Topology(),
            "training": Training(),
            "rules": rule_set(),
        },
    ),
    _call(
        "pricing.bind_facts",
        pricing.bind_facts,
        lambda: {"facts": dict(bound().facts), "rules": rule_set()},
    ),
    _call("pricing.bind_facts", _fact, lambda: dict(bound().facts)),
    _call(
        "pricing.price",
        pricing.price,
        lambda: {"plan": plan(), "bound": bound(), "strict": False, "margin": 0.1},
    ),
    _call(
        "pricing.rules_table",
        pricing.rules_table,
        lambda: {
            "model": HYBRID,
            "topology": Topology(),
            "training": Training(),
            "rules": rule_set(),
        },
    ),
    _call(
        "pricing.Measures",
        lambda **arrays: bound().results(pricing.Measures(**arrays)),
        lambda: {"plan": measures().plan, "groups": measures().groups},
        "plan",
    ),
    _call(
        "pricing.Measures.of", pricing.Measures.of, lambda: {"plan": {"cold": 0}, "groups": [{}]}
    ),
    _call("pricing.Measures.of", _measured, lambda: measures().to_dict()["plan"]),
    _call("pricing.Measures.of", _measured_groups, lambda: measures().to_dict()["groups"][0]),
    _method("pricing.Measures.to_dict", measures, dict),
    _method("pricing.BoundRules.results", bound, lambda: {"measures": measures()}),
    _method("pricing.BoundRules.evaluate", bound, lambda: {"measures": measures()}),
    _method("pricing.Price.explain", lambda: plan().price, dict),
    _method("pricing.Price.to_dict", lambda: plan().price, dict),
    _call(
        "pricing.Rule",
        _rule,
        lambda: {
            "name": "my.buffer",
            "bytes": "local_tokens * hidden * 2 * B",
            "where": 1,
            "checked": 1,
            "applies": 1,
            "lives": "workspace",
            "why": "",
            "source": "",
        },
    ),
    _method("pricing.Rule.formula", lambda: RULE, given(part="where")),
    _call(
        "pricing.RuleSet",
        lambda **parts: pricing.RuleSet(**parts),
        lambda: {
            "name": "x",
            "rules": dict(rule_set().rules),
            "definitions": dict(rule_set().definitions),
            "margin": True,
        },
    ),
    _method("pricing.RuleSet.with_rule", rule_set, given(rule=RULE, total="workspace")),
    _method(
        "pricing.RuleSet.override",
        rule_set,
        given(
            name="moe.routed_rows",
            bytes="3 * B",
            where="tp == 1",
            checked=1,
            applies=1,
            why="",
            source="",
        ),
    ),
    _method(
        "pricing.RuleSet.redefine",
        rule_set,
        given(name="logical_token_bytes", formula="3 * B", why="x"),
    ),
    _method("pricing.RuleSet.without", rule_set, given(name="moe.routed_rows")),
    _method("pricing.RuleSet.with_file", rule_set, lambda: {"path": _toml()}),
    _call("pricing.default_rules", pricing.default_rules, dict),
    _call("pricing.reference_rules", pricing.reference_rules, dict),
    _call("pricing.resident_rules", pricing.resident_rules, dict),
]
PLANNER_CALLS = [
    _call(
        "planner.Planner",
        Planner,
        lambda: {
            "model": HYBRID,
            "topology": Topology(cp=2),
            "training": Training(),
            "budget": FREE,
            "rules": rule_set(),
            "agreement": Alone(),
            "trust": "rules",
            "compatible": False,
            "device": scoring.H200,
            "scoring": PLANNER.scoring,
            "assign": SETTINGS,
            "margin": 0.1,
        },
    ),
    _call(
        "planner.Planner",
        lambda **options: _plan_with(HYBRID, Topology(cp=2), **options),
        lambda: {
            "rules": rule_set(),
            "trust": "rules",
            "compatible": False,
            "device": scoring.H200,
            "margin": 0.1,
        },
    ),
    _call(
        "planner.Planner", lambda limit: setattr(planner(), "limit", limit), given(limit=1 << 30)
    ),
    _method(
        "planner.Planner.like",
        planner,
        lambda: {"topology": Topology(), "budget": Budget(available=1 << 40)},
    ),
    _method(
        "planner.Planner.waves",
        planner,
        lambda: {"requests": requests(), "on_refusal": "raise", "start": 0},
    ),
    _method("planner.Planner.wave", planner, lambda: {"requests": requests(), "start": 1}),
    _method("planner.Planner.plan", planner, lambda: {"requests": requests(), "limit": 1 << 40}),
    _method(
        "planner.Planner.observe",
        planner,
        lambda: {"wave": wave(), "peak_bytes": 1 << 30, "retained_bytes": 1 << 20, "whole": True},
    ),
    _method(
        "planner.Planner.signature_of",
        planner,
        lambda: {"pool": requests(), "rows": np.array([0, 1])},
        "rows",
    ),
    _method("planner.Planner.prefetch", planner, lambda: {"requests": requests(), "start": 0}),
    _method("planner.Planner.take_ahead", planner, lambda: {"waves": waves()}),
    _method("planner.Planner.remember", planner, lambda: {"waves": waves()}),
    _method("planner.Planner.make_engine", planner, lambda: {"pool": requests()}),
    _call(
        "waves.Waves",
        Waves,
        lambda: {"planner": planner(), "requests": requests(), "on_refusal": "raise", "start": 0},
    ),
    _method("waves.Waves.plan_next", waves, dict),
    _method("waves.Waves.prefetch", waves, dict),
    _method("waves.Waves.session", waves, dict),
    _method("waves.Waves.mode", waves, dict),
    _method("wave.Wave.to_dict", wave, dict),
    _method("plan.Plan.to_dict", plan, dict),
    _method("plan.Forward.result", lambda: plan().forwards[0], given(name="required")),
    _method("plan.ForwardGroup.to_dict", lambda: plan().groups[0], dict),
    _call(
        "profiles.Signature",
        _planned_signature,
        lambda: {"context": "x", "mixes": ["a"], "gradients": [True], "adapters": [[True, 8]]},
    ),
    _call("profiles.Observation", _observed, lambda: fields(SEEN)),
    _call(
        "profiles.Rates",
        _planned_rates,
        lambda: fields(profiles.Rates(10.0, 100, 1.0, 2.0, 3.0, 50, 1.0, 2)),
    ),
    _call(
        "profiles.Observed",
        _planned_profile,
        lambda: {
            "first": [10, 1000],
            "later": [[10, 900], [20, 1000]],
            "partial": [],
            "sharing": 1.0,
            "retained": [[10, 20]],
            "retained_sharing": 1.0,
        },
    ),
    _call("profiles.Rates.first", profiles.Rates.first, given(seen=SEEN)),
    _method("profiles.Rates.after", lambda: profiles.Rates.first(SEEN), given(seen=SEEN)),
    _method("profiles.Rates.columns", lambda: profiles.Rates.first(SEEN), dict),
    _method("profiles.Observed.after", profiles.Observed, given(seen=SEEN)),
    _method("profiles.Observed.columns", profiles.Observed, dict),
    _call("profiles.Profiles", profiles.Profiles, given(published=False)),
    _method("profiles.Profiles.observe", known, given(signature=SIGNATURE, seen=SEEN)),
    _call(
        "profiles.Profiles",
        lambda **entry: known().__setitem__(*entry.values()),
        given(signature=SIGNATURE, profile=profiles.Observed()),
    ),
    _method("profiles.Profiles.items", known, dict),
    _method("profiles.Profiles.to_dict", known, dict),
    _call(
        "profiles.Profiles.from_dict",
        profiles.Profiles.from_dict,
        lambda: {"data": known().to_dict()},
    ),
    _call(
        "profiles.Profiles.from_dict",
        lambda **data: profiles.Profiles.from_dict(data),
        lambda: known().to_dict(),
    ),
    _call(
        "profiles.Profiles.save",
        lambda path: known().save(path),
        given(path="profiles.json"),
        raises=(OSError,),
    ),
    _call("profiles.Profiles.load", profiles.Profiles.load, lambda: {"path": _profiles_file()}),
    _method("profiles.Profiles.columns", known, given(context="tp1", mixes=("target:single",))),
    _method("profiles.Profiles.fresh", known, dict),
    _call(
        "agreement.Alone",
        lambda **given: (Alone(**given), planner(agreement=Alone(**given))),
        given(dp_rank=0),
    ),
    _method("agreement.Alone.all_min", Alone, lambda: {"values": np.arange(3)}),
    _method("agreement.Alone.all_max", Alone, lambda: {"values": np.arange(3)}),
    _call(
        "agreement.Agreement",
        _agreed,
        lambda: {"answer": "same", "size": 1, "rank": 0, "dp_rank": 0},
    ),
    _call("ranks.in_step", _in_step, lambda: {"agreement": Alone()}),
]
JOB_CALLS = [
    _call("jobs.Job", _job, lambda: fields(job())),
    _method("jobs.Job.facts", job, dict),
    _method("jobs.Job.memory", job, dict),
    _method("jobs.Job.memory_text", job, dict),
    _method("jobs.Job.training_text", job, dict),
    _method("jobs.Job.ranks_text", job, dict),
    _method("jobs.Job.rule_set_of", job, dict),
    _method("jobs.Job.planner", job, dict),
    _call("jobs.Source", _source, lambda: fields(source())),
    _method("jobs.Source.requests", source, given(on_read=None)),
    _call("jobs.model_named", jobs.model_named, given(name="qwen3-4b")),
    _call(
        "sweep.jobs",
        sweep.jobs,
        lambda: {"axes": {"model": ["qwen3-4b"], "cp": [1, 2], "available": ["70GiB"]}},
    ),
    _call(
        "sweep.jobs",
        lambda **axes: sweep.jobs(axes),
        lambda: {"model": ["qwen3-4b"], "cp": [1, 2], "available": ["70GiB"]},
    ),
    _call("sweep.run_job", sweep.run_job, lambda: {"job": job(), "source": source()}),
    _call(
        "sweep.sweep",
        _swept,
        lambda: {
            "source": source(),
            "configurations": [job()],
            "executor": Now(),
            "output": None,
        },
        raises=(OSError,),
    ),
    _call(
        "sweep.outcomes",
        _outcomes,
        lambda: {"source": source(), "configurations": [job()], "executor": Now(), "output": None},
    ),
    _call("sweep.process_pool", lambda most: sweep.process_pool(most).shutdown(), given(most=1)),
    _call("sweep.Outcome", sweep.Outcome, lambda: fields(sweep.Outcome(status="ok"))),
    _call(
        "integrations.art.install",
        art.install,
        given(shadow=False, on_difference="raise", force=False, save=None),
        raises=(ImportError,),
    ),
    _call("integrations.art.uninstall", art.uninstall, dict),
    _call("integrations.art.installed", art.installed, dict),
    _call("integrations.art.replay", art.replay, given(path="x"), raises=(ImportError,)),
]


def _toml() -> str:
    text = '[rule."my.buffer"]\nbytes = "local_tokens * 2 * B"\n'
    return file("rules.toml", lambda path: path.write_text(text))


def _profiles_file() -> str:
    return file("good.json", lambda path: known().save(path))


CALLS = [*ROW_CALLS, *LAYOUT_CALLS, *MODEL_CALLS, *PRICE_CALLS, *PLANNER_CALLS, *JOB_CALLS]
