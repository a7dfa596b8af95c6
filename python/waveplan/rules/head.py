"""The output head and what a forward returns."""

from __future__ import annotations

from waveplan.rules.checkpoint import PUBLISHED
from waveplan.rules.ruleset import Rule

DEFINITIONS = {
    "head_chunk": ("min(head_rows, 512)", "rows the head runs at once"),
    "head_dense": (
        "head_chunk * (vocab // tp) * dtype_bytes",
        "one head chunk against this rank's vocabulary",
    ),
    "head_targets_dense": (
        "min(head_target_rows, 512) * (vocab // tp) * dtype_bytes",
        "the same for the longest labelled request",
    ),
    "head_vectors": (
        "128 B * head_chunk + 36 B * min(head_chunk * head_width, head_labels + head_topk)"
        " + 32 B * head_labels + (4 B * head_topk + 8 B * head_rows if gradient else 0)",
        "index and normalizer vectors of the statistics",
    ),
    "head_gathered": (
        "(3 if tp == 1 else 2 + 2 * tp) * head_dense",
        "local logits with their copies, gathered over TP",
    ),
    "head_exact": (
        "max(7 * head_dense + head_vectors, head_gathered if head_logits else 0)"
        " if head_statistics else head_gathered if head_logits else head_dense",
        "statistics (eager), else logits, else the plain projection",
    ),
    "head_rejection": (
        "max(head_dense, 2 * head_targets_dense if gradient and head_targets else 0)",
        "what every layout needs",
    ),
    "output_bytes_total": (
        "output.targets + output.top_k + output.logits + output.hidden + output.routing",
        "everything that is returned",
    ),
}
DEFINITIONS["outputs"] = DEFINITIONS.pop("output_bytes_total")

RULES = [
    Rule(
        "head.workspace",
        "0 if head_rows == 0 else head_rejection if head_bound else head_exact",
        covers="PP=1, bf16, a vocabulary divisible by TP; TP>1 only where the TP x SP checkpoint "
        "rules are measured",
        coverage="pp == 1 and dtype_bytes == 2 B and vocab // tp * tp == vocab"
        " and (tp == 1 or checkpoint_covered)",
        needed="output_layer",
        why="logits of one 512-row chunk with their statistics",
        source=f"{PUBLISHED}; index vectors measured on CPU and H200",
    ),
    Rule(
        "output.targets",
        "4 B * target_entries",
        covers="any model",
        lives="output",
        why="log-probabilities of the labels, fp32",
        source=PUBLISHED,
    ),
    Rule(
        "output.top_k",
        "12 B * top_k_entries",
        covers="any model",
        lives="output",
        why="top-k values and indices",
        source=PUBLISHED,
    ),
    Rule(
        "output.logits",
        "logits_tokens * vocab * dtype_bytes",
        covers="any model",
        lives="output",
        why="full logits",
        source=PUBLISHED,
    ),
    Rule(
        "output.hidden",
        "hidden_tokens * hidden * dtype_bytes",
        covers="any model",
        lives="output",
        why="hidden states",
        source=PUBLISHED,
    ),
    Rule(
        "output.routing",
        "16 B * routed_entries",
        covers="any model",
        lives="output",
        why="routed-expert replay, held for both layouts",
        source=PUBLISHED,
    ),
]
