"""What Megatron-LM's own report says of a job, restated from its published formula.

The report (`megatron/training/theoretical_memory_usage.py`) counts 18 bytes a parameter of the
fullest stage, or 6 and 12 over the data-parallel ranks with the distributed optimizer, and the
activations of the first stage by the formula of "Reducing Activation Recomputation in Large
Transformer Models" (table 2). It prints those only with sequence parallelism and selective
recomputation; here they are added everywhere, which is kinder.

    python benches/megatron_report.py tests/data/megatron_tests.json.gz
"""

from __future__ import annotations

import sys

from waveplan.accuracy.check import check, read
from waveplan.accuracy.megatron import test_of
from waveplan.accuracy.report import Report
from waveplan.facts.megatron import MegatronJob
from waveplan.report.table import Table


def parameters(job: MegatronJob) -> float:
    """Parameters of the fullest stage and rank, as the report counts them."""
    model, topology = job.model, job.topology
    gate = 1.5 if model.gated_mlp else 1.0
    if model.mla:
        heads = model.heads
        query = model.qk_nope_head_dim + model.qk_rope_head_dim
        rank = model.q_lora_rank
        attention = (
            (rank * (model.hidden + heads * query + 1) if rank else model.hidden * heads * query)
            + model.kv_lora_rank
            * (model.hidden + heads * (model.qk_nope_head_dim + model.v_head_dim) + 1)
            + model.hidden * model.qk_rope_head_dim
            + heads * model.v_head_dim * model.hidden
        )
    else:
        groups = 1 + model.kv_groups / model.heads
        attention = 2 * model.hidden * groups * model.heads * model.head_dim
    dense = 2 * model.hidden * (model.ffn * gate + 2) + attention
    routed = model.expert_ffn * model.experts + model.shared_ffn
    moe = 2 * model.hidden * (routed * gate + 2) + attention
    count = sum(model.moe_layers)
    layers = dense * (model.layers - count) + moe * count + 2 * model.hidden
    last = moe if model.moe_layers and model.moe_layers[-1] else dense
    mtp = last * (model.mtp_layers if job.training.mtp else 0)
    embedding = model.hidden * model.vocab
    untied = embedding if not model.tied_embeddings and topology.pp == 1 else 0
    return (layers / topology.pp + mtp + embedding + untied) / topology.tp


def report(job: MegatronJob) -> float:
    """Bytes that the report prints for a job."""
    model, topology, training = job.model, job.topology, job.training
    sharded = topology.sharding.kind != "none"
    total = parameters(job) * (6 + 12 / topology.dp if sharded else 18)
    tokens = (job.micro_batch or 1) * (job.sequence or 1)
    kept = tokens * (18 * model.hidden + 4 * model.ffn) * model.layers
    kept += tokens * (8 + model.hidden) * topology.pp
    if topology.virtual > 1:
        kept *= 1 + (topology.pp - 1) / (topology.pp * topology.virtual)
    elif topology.pp > 1 and training.microbatches:
        kept *= min(1.0, training.microbatches / topology.pp)
    if topology.pp == 1:
        kept += 4 * tokens * (model.hidden + model.vocab)
    return total + kept / topology.tp


def compared(path: str, ours_of: Report) -> list[tuple[object, ...]]:
    """A line a class: how many records, and the share of each estimator within 5 and 10 %."""
    records = {record["id"]: record for record in read(path)}
    lines: list[tuple[object, ...]] = []
    for one in ours_of.classes():
        theirs = [report(test_of(records[row.id]).job) / row.observed for row in one.rows]
        ours = [row.estimate / row.observed for row in one.rows]
        shares = [
            f"{sum(abs(ratio - 1) <= most for ratio in ratios) / len(ratios):.0%}"
            for ratios in (ours, theirs)
            for most in (0.05, 0.1)
        ]
        below = sum(ratio < 1 for ratio in theirs) / len(theirs)
        lines.append((one.name, len(one.rows), *shares, f"{below:.0%}"))
    return lines


HEAD = ("class", "records", "5 %", "10 %", "theirs 5 %", "theirs 10 %", "theirs below")

if __name__ == "__main__":
    print(
        Table(
            "", HEAD, compared(sys.argv[1], check(sys.argv[1])), right=HEAD[1:], ruled=False
        ).plain()
    )
