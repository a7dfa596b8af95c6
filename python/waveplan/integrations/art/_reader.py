"""Read a live rank of the other package into our reference planner.

Sizes and formulas are the rank's own: its geometry, what its functions price of its modules, and
its settings of ownership. What our rules cannot express is declined.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from art.trainer_rank import _gdn_memory, _memory
from art.trainer_rank import _impl as impl

from waveplan import _core
from waveplan.facts.kinds import ATTENTION, DTYPE_BYTES, GDN, UNITS
from waveplan.facts.model import Model
from waveplan.facts.topology import RANKS, Topology
from waveplan.facts.training import Training
from waveplan.pricing import bind, reference_rules
from waveplan.scoring import Scoring

from ._gdn import model_state
from ._ranks import configurations
from ._seams import Declined
from ._settings import gdn_settings, ownership_settings
from ._trees import scoring
from ._values import SEARCH, Int64, array, once

_HOLDS = ("checkpoint_holds", "recompute_one_layer", "dense_cp", "tp_sp", "gdn_holds", "moe_holds")
Terms = tuple[int, tuple[tuple[int, int], ...]]
"""Bytes a token of an expert layer, and its further stages: (bytes a token, fixed bytes)."""
CONTEXT = "art"
_IDLE = np.zeros(1, np.int64)
_UNREAD = (0, 0, 0, 0, 1, 0, 0, 0)
_KNOWN = "_waveplan_known"
"""Attribute of a rank: what walks of its model found, and what they read."""
_SIZES = attrgetter(
    *("_hidden_size", "_param_dtype_size", "_gdn_layers", "_moe_layers", "_parallel_shape"),
    *("_moe_output_bytes_per_token", "_moe_checkpoint_grad_bytes_per_token"),
)


_OWN = (
    *("geometry", "num_layers", "gdn_layers", "moe_layers", "padded_vocab_size"),
    *("param_dtype_size", "attention_output_gate", "mlp_activation_factor", "sequence_parallel"),
    *("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules"),
    *("dense_fc1_adapted", "mixer_top_gaps", "lora_modules_per_layer"),
)
"""Attributes of a rank, without their underscore, that prices depend on."""
Own: Any = namedtuple("Own", _OWN)  # type: ignore[misc]
_READ_OWN = attrgetter(*(f"_{name}" for name in _OWN))


class Job(NamedTuple):
    """What prices depend on, before any token is seen."""

    own: Any
    """The rank's own attributes."""
    ranks: tuple[int, int, int, int, int, int]
    """dp, tp, cp, pp, ep, etp."""
    moe: tuple[Terms, Terms]
    """Of packs without gradients, and with."""
    gdn_shape: Any
    head: bool
    holds: tuple[bool, ...]
    """Whether what `_HOLDS` names is priced."""
    lora_rank: int
    pending: tuple[int, ...]
    """Adapter gradients to be allocated: of each layer, and outside of them."""
    exchange: tuple[int, int, int] | None
    """HybridEP: its ranks, bytes of a token of a rank in its buffers, tokens that they hold."""
    combined: int | None
    """Tokens that recomputation combines at least; None: its buffer is not priced."""


class Reading(NamedTuple):
    """A pool with everything needed to search it."""

    pool: _core.Requests
    engine: _core.Engine
    profiles: list[tuple[_core.Signature, _core.Rates]]
    tokens: list[Int64]
    keys: list[Any]
    """Adapter slot, gradients and replay of each request; None if nothing is asked of it."""


def read(rank: Any, groups: Sequence[Sequence[Any]], unread: int, checkpoint: Any) -> Reading:
    """Read requests by group, the job of a rank, its profiles.

    Of so many groups more nothing is read: an idle request of one token stands for each.
    """
    requests = [request for group in groups for request in group]
    sizes = [*map(len, groups), *[1] * unread]
    pool, tokens, slots, keys = _pool(rank, requests, sizes, unread, checkpoint)
    shapes = {ref: rank._slot_memory_shapes(ref) for ref in slots}
    named = [ref for ref in slots if not _unnamed(ref)]
    gradient = bool(pool.gradient.any())
    pending = rank._pending_adapter_gradient_bytes(named) if named and gradient else ()
    facts = {} if SEARCH.facts is None else SEARCH.facts
    state = (shapes, rank._topology_key(), _SIZES(rank), model_state(rank, slots))
    known, walks = vars(rank).get(_KNOWN, (None, {}))
    if _same(known, state):
        facts.update(walks)
    job = _job(rank, slots, shapes, gradient, pending)
    settings = _settings(rank, job, shapes)
    vars(rank)[_KNOWN] = state, dict(facts)
    firsts = dict(
        zip(reversed(pool.mix[: len(requests)].tolist()), reversed(requests), strict=True)
    )
    mixes = {impl._request_mix_key(one): pool.mixes[mix] for mix, one in firsts.items()}
    engine = _core.Engine(pool, settings, _program(job))
    return Reading(pool, engine, _profiles(rank, job, shapes, mixes), tokens, keys)


def _same(one: Any, other: Any) -> bool:
    """Return whether states are equal; what cannot be compared is not."""
    try:
        return bool(one == other)
    except Exception:
        return False


def forget(rank: Any) -> None:
    """Read a rank anew the next time: something about it has changed."""
    vars(rank).pop(_KNOWN, None)


def _pool(
    rank: Any, requests: Sequence[Any], sizes: list[int], unread: int, checkpoint: Any
) -> tuple[_core.Requests, list[Int64], list[Any], list[Any]]:
    """Return the requests, their tokens, adapter slots by number, and each request's key."""
    if not requests or 0 in sizes:
        raise Declined
    enabled, most = torch.is_grad_enabled(), rank._padded_vocab_size or 0
    tokens: list[Int64] = []
    labels: list[Int64 | None] = []
    rows: list[tuple[int, ...]] = []
    keys: list[Any] = []
    slots: dict[Any, int] = {}
    named: dict[Any, tuple[Any, int]] = {}
    for request in requests:
        line, target, k = request.input_tokens, request.target_tokens, request.top_k
        routes, number, width, key = request.routed_experts, 0, 1, None
        gradient = enabled if request.no_grad is None else not request.no_grad
        if k is not None and not 0 < k <= most:
            raise Declined
        tokens.append(array(line))
        if target is None:
            labels.append(None)
        else:
            labels.append(array(target))
            if target.shape != line.shape:
                width = _labels_per_token(target, line)
        if target is not None or k or request.logits or request.hidden_states:
            selection = request.checkpoint
            if selection not in named:
                ref = rank._resolve_slot_ref(request, checkpoint=checkpoint)
                named[selection] = ref, slots.setdefault(ref, len(slots))
            ref, number = named[selection]
            key = (ref, gradient, routes is not None)
        keys.append(key)
        routed, outputs = 0 if routes is None else routes.numel(), request.hidden_states
        flags = (target is not None, bool(request.logits), bool(outputs), gradient)
        rows.append((*flags, width, k or 0, number, routed))
    if not all(map(len, tokens)):
        raise Declined
    refs = list(slots)
    names = [f"slot {number}" for number, ref in enumerate(refs) if not _unnamed(ref)]
    places = [0 if _unnamed(ref) else names.index(f"slot {n}") + 1 for n, ref in enumerate(refs)]
    if len(refs) - len(names) > 1:
        raise Declined
    columns = np.array(rows + [_UNREAD] * unread, np.int64).T.copy()
    targets, logits, hidden, gradients = columns[:4].astype(bool)
    widths, top_k, number, routed = columns[4:]
    pool = _core.Requests(
        tokens + [_IDLE] * unread,
        labels=labels + [None] * unread,
        targets=targets,
        target_width=widths,
        top_k=top_k,
        logits=logits,
        hidden=hidden,
        gradient=gradients,
        adapters=names,
        slot=np.array(places or [0])[number],
        routed=routed,
        group_sizes=np.array(sizes),
    )
    return pool, tokens, refs, keys


def _unnamed(ref: Any) -> bool:
    return ref is None or ref.name is None


def _labels_per_token(target: Any, tokens: Any) -> int:
    """Return how many labels a token has; decline labels that are no vector of each token."""
    shape, own = tuple(target.shape), tuple(tokens.shape)
    if shape[: len(own)] == own:
        rest = shape[len(own) :]
    elif shape and shape[0] == tokens.numel():
        rest = shape[1:]
    else:
        raise Declined
    if len(rest) != 1 or rest[0] < 2:
        raise Declined
    return int(rest[0])


def _job(
    rank: Any, slots: list[Any], shapes: dict[Any, Any], gradient: bool, pending: tuple[int, ...]
) -> Job:
    """Read a rank; decline what our rules do not have."""
    slots = slots or [None]
    _, tp, cp, pp = rank._topology_key()
    shape = rank._parallel_shape
    terms = {_terms(rank, ref) for ref in slots} if rank._moe_layers else {((0, ()), (0, ()))}
    models = {_gdn_memory.model_shapes(rank, ref) for ref in slots} if gradient else {None}
    head = rank._head_workspace_bytes(1) > 0
    if (
        rank._planner_reranker is not None
        or pp > 1
        or len(terms) > 1
        or len(models) > 1
        or (pending and len(slots) > 1)
        or (head and not _memory._head_target_backward(rank))
        or len({of for of in shapes.values() if of}) > 1
    ):
        raise Declined
    layers_shapes = models.pop()
    kinds = set() if layers_shapes is None else set(layers_shapes[1])
    if len(kinds) > 1:
        raise Declined
    gdn = kinds.pop() if kinds else None
    adapters = [one for of in shapes.values() for one in of]
    return Job(
        own=Own(*_READ_OWN(rank)),
        ranks=(*rank._dp_rank_and_size()[1:], tp, cp, pp, shape.ep, shape.etp),
        moe=terms.pop(),
        gdn_shape=gdn,
        head=head,
        holds=(
            _memory._checkpoint_layers(rank, ((1, True),)) > 0,
            rank._one_layer_recompute(),
            _memory._native_dense_cp(rank),
            tp > 1 and rank._sequence_parallel_floor_covered(tp, cp),
            gdn is not None,
            rank._moe_layers > 0,
        ),
        lora_rank=max((one[2] for one in adapters if len(one) == 5), default=8),
        pending=pending,
        exchange=_exchange(rank),
        combined=_memory._checkpoint_hybridep_rows(rank, ((0, True),)),
    )


def _exchange(rank: Any) -> tuple[int, int, int] | None:
    """Read the buffers of HybridEP, which outlive a rank."""
    provider = rank.runtime.provider
    sizes = (f"expert_{kind}_parallel_size" for kind in ("model", "tensor"))
    ep, etp = (int(getattr(provider, size, 1) or 1) for size in sizes)
    if ep <= 1:
        return None
    from megatron.core.transformer.moe import fused_a2a

    ranks, columns, some = ep * etp, int(provider.num_moe_experts) * etp, 512
    size = impl._hybridep_buffer_bytes(some, ranks, int(provider.hidden_size), columns)
    held = fused_a2a._hybrid_ep_buffer
    most = 0 if held is None else int(held.configurer.buffer_config.max_num_of_tokens_per_rank)
    return ranks, size // some, most


def _terms(rank: Any, ref: Any) -> Any:
    """Return what an expert layer needs: of packs without gradients, and with."""
    price = functools.partial(_memory._moe_workspace_terms, rank, slot_ref=ref)
    return once(
        ("moe", id(rank.runtime), ref),
        lambda: (price(checkpoint_grad=False), price(checkpoint_grad=True)),
    )


@functools.lru_cache(maxsize=64)
def _program(job: Job) -> _core.Program:
    """Bind the reference rules with the coefficients of a job."""
    rules = reference_rules()
    for name, holds in zip(_HOLDS, job.holds, strict=True):
        rules = rules.redefine(name, int(holds))
    (forward, stages), (backward, backward_stages) = job.moe
    rules = rules.override("moe.shared_expert_return", applies=0)
    rules = rules.override(
        "moe.routed_tokens",
        bytes=f"local_tokens * ({backward} * B if gradient else {forward} * B)",
    )
    rules = rules.override(
        "moe.slot_stages",
        bytes=f"({_stages(backward_stages)} if gradient else {_stages(stages)}) "
        "if local_tokens > 0 else 0",
        where=1,
        applies=int(job.own.moe_layers > 0 and bool(stages or backward_stages)),
    )
    exchanging, size, held = job.exchange or (1, 0, 0)
    rules = rules.redefine("hybridep_ranks", exchanging)
    rules = rules.override(
        "hybridep.buffer",
        bytes=f"hybridep_aligned * {size} * B "
        f"if longest_pack > 0 and hybridep_aligned > {held} else 0",
        where=1,
        applies=int(exchanging > 1),
    )
    rules = rules.override(
        "hybridep.combine",
        bytes=f"ceildiv(max({job.combined or 0}, max_packs(local_tokens)), 4) * 4 * hidden * 2 * B "
        "if has_gradient else 0",
        where=1,
        applies=int(job.combined is not None),
    )
    if job.own.lora_modules_per_layer:
        rules = rules.redefine("layer_modules", job.own.lora_modules_per_layer)
    if job.pending:
        *layers, after = job.pending
        walk, reached = [f"{after} * B"], after
        for released, size in enumerate(reversed(layers)):
            reached += size
            walk.append(f"{reached} * B - {released} * layer_boundary")
        rules = rules.redefine("adapter_walk", f"max({', '.join(walk)}) if gradient else 0")
        net = f"{sum(job.pending)} * B - layers * layer_boundary"
        rules = rules.redefine("adapter_net", f"{net} if gradient else 0")
    ranks: dict[str, Any] = dict(zip(RANKS, job.ranks, strict=True))
    sequence_parallel = job.own.sequence_parallel and ranks["tp"] > 1
    topology = Topology(**ranks, sequence_parallel=sequence_parallel)
    return bind(_model(job), topology, _training(job), rules).program


def _stages(stages: Sequence[tuple[int, int]]) -> str:
    parts = [f"local_tokens * {per_token} * B + {fixed} * B" for per_token, fixed in stages]
    return f"max({', '.join(parts)})" if len(parts) > 1 else "".join(parts) or "0 * B"


def _model(job: Job) -> Model:
    own, sizes = job.own, job.own.geometry
    gdn, moe = own.gdn_layers > 0, own.moe_layers > 0
    dtypes = {DTYPE_BYTES[name]: name for name in ("float32", "bfloat16")}
    units = {factor: name for name, factor in UNITS.items()}
    if own.param_dtype_size not in dtypes:
        raise Declined
    return Model(
        hidden=sizes.hidden_size,
        layers=own.num_layers,
        vocab=own.padded_vocab_size or 1,
        heads=sizes.num_attention_heads,
        kv_groups=sizes.num_query_groups,
        head_dim=sizes.kv_channels,
        attention_gate=own.attention_output_gate,
        ffn=sizes.ffn_hidden_size or 4 * sizes.hidden_size,
        experts=sizes.moe_experts if moe else 0,
        topk=sizes.moe_topk if moe else 0,
        expert_ffn=sizes.moe_ffn_hidden_size if moe else 0,
        shared_ffn=sizes.moe_shared_expert_ffn if moe else 0,
        gdn_layers=own.gdn_layers,
        gdn_key_heads=sizes.gdn_key_heads if gdn else 0,
        gdn_value_heads=sizes.gdn_value_heads if gdn else 0,
        gdn_key_dim=sizes.gdn_key_head_dim if gdn else 0,
        gdn_value_dim=sizes.gdn_value_head_dim if gdn else 0,
        gdn_conv=sizes.gdn_conv_kernel if gdn else 0,
        dtype=dtypes[own.param_dtype_size],
        layer_kinds=_kinds(own),
        moe_layers=tuple(i < own.moe_layers for i in range(own.num_layers)) if moe else (),
        unit=units[own.mlp_activation_factor],
    )


def _kinds(own: Any) -> tuple[str, ...]:
    """Return an order of layers, bottom first, with the gaps above the highest of each kind."""
    attention, gdn = own.mixer_top_gaps or (None, None)
    if attention is None or gdn is None or not 0 < own.gdn_layers < own.num_layers:
        return ()
    above: int = max(attention, gdn)
    top, below = (GDN, ATTENTION) if gdn == 0 else (ATTENTION, GDN)
    left: dict[str, int] = {GDN: own.gdn_layers, ATTENTION: own.num_layers - own.gdn_layers}
    left[top] -= above
    left[below] -= 1
    if min(left.values()) < 0:
        raise Declined
    return (top,) * left[top] + (below,) * (left[below] + 1) + (top,) * above


def _training(job: Job) -> Training:
    own, granularity = job.own, job.own.recompute_granularity
    options: dict[str, Any] = {}
    if granularity == "selective" and own.recompute_modules:
        options["recompute_modules"] = tuple(sorted(own.recompute_modules))
    if granularity == "full":
        options["recompute_method"] = own.recompute_method or "uniform"
        options["recompute_num_layers"] = own.recompute_num_layers or 1
    return Training(
        recompute=granularity or "none",
        output_layer=job.head,
        lora_rank=job.lora_rank,
        gdn_output_rank=0 if job.gdn_shape is None else job.gdn_shape.output_lora_rank,
        lora_modules=("mlp.gate", "mlp.up", "mlp.down")
        if own.dense_fc1_adapted
        else ("attention.o",),
        gradients_pending=bool(job.pending),
        **options,
    )


def _settings(rank: Any, job: Job, shapes: dict[Any, Any]) -> _core.PlannerSettings:
    dp, tp, cp, *_ = job.ranks
    config, gdn = configurations(rank)
    return _core.PlannerSettings(
        context=CONTEXT,
        reference=True,
        trust_rules=False,
        dp=dp,
        dp_rank=rank._dp_rank_and_size()[0],
        tp=tp,
        cp=cp,
        split=True,
        moe=job.own.moe_layers > 0,
        gdn_pending=job.gdn_shape is not None,
        adapter_pending=bool(job.pending) and job.own.recompute_granularity == "full",
        adapter_rank=job.lora_rank if any(shapes.values()) else 0,
        scoring=_scoring(rank),
        ownership=ownership_settings(config),
        gdn=None if gdn is None else gdn_settings(gdn),
    )


def _scoring(rank: Any) -> Scoring:
    facts = rank._planner_topology_facts()._asdict()
    table = facts["coefficient_table"]
    return scoring({**facts, "coefficients": rank._planner_coefficients if table else None})


def _profiles(
    rank: Any, job: Job, shapes: dict[Any, Any], known: dict[str, str]
) -> list[tuple[_core.Signature, _core.Rates]]:
    """Return the profiles of plans that this pool can have."""
    topology = rank._topology_key()
    score = (rank._coefficient_version, rank._coefficient_table)
    present = {of for of in shapes.values() if of}
    found = []
    for signature, profile in rank._memory_profiles.items():
        if type(signature) is not impl._MemorySignature or type(profile) is not impl._MemoryProfile:
            raise Declined
        if (
            signature.topology != topology
            or signature.planner_coefficients != score
            or signature.slot_group_count != len(signature.grad_modes)
            or not known.keys() >= set(signature.request_mix)
            or not {of for _, of in signature.slot_shapes if of} <= present
        ):
            continue
        ours = _core.Signature(
            CONTEXT,
            tuple(sorted(known[mix] for mix in signature.request_mix)),
            tuple(signature.grad_modes),
            tuple(sorted((grad, job.lora_rank if of else 0) for grad, of in signature.slot_shapes)),
        )
        rates = _core.Rates(
            bytes_per_token=profile.bytes_per_token,
            packed_tokens=profile.packed_tokens,
            logical_per_packed=profile.logical_per_packed,
            retained=profile.retained_compute_bytes_per_token,
            warm_bytes_per_token=profile.warm_bytes_per_token,
            warm_packed_tokens=profile.warm_packed_tokens,
            warm_logical_per_packed=profile.warm_logical_per_packed,
            whole_waves=profile.caller_plans,
        )
        found.append((ours, rates))
    return found
