"""The output head and what a forward returns."""

from __future__ import annotations

from waveplan.pricing.ruleset import NOTHING, REFERENCE, Definition, Rule, total

TABLE = [
    Definition(
        "head_chunk",
        "min(head_tokens, head_chunk_size)",
        "tokens the head runs at once",
        reference="min(head_tokens, 512)",
    ),
    Definition(
        "largest_head_chunk",
        "head_chunk(head_tokens=1000000000)",
        "from here on more tokens do not make a chunk larger",
    ),
    Definition(
        "head_dense",
        "head_chunk * (vocab // tp) * dtype_bytes",
        "one head chunk against this rank's vocabulary",
    ),
    Definition(
        "head_targets_dense",
        "head_dense(head_tokens=head_target_tokens)",
        "the same for the longest labelled request",
    ),
    Definition(
        "head_vectors",
        "128 * B * head_chunk + 36 * B * min(head_chunk * head_width, head_labels +"
        " head_topk) + 32 * B * head_labels + (4 * B * head_topk + 8 * B * head_tokens if"
        " gradient else 0)",
        "index and normalizer vectors of the statistics",
    ),
    Definition(
        "head_gathered",
        "(3 if tp == 1 else 2 + 2 * tp) * head_dense",
        "local logits with their copies, gathered over TP",
    ),
    Definition(
        "head_exact",
        "max(7 * head_dense + head_vectors, head_gathered if head_logits else 0) if"
        " head_statistics else head_gathered if head_logits else head_dense",
        "statistics (eager), else logits, else the plain projection",
    ),
    Definition(
        "head_rejection",
        "max(head_dense, 2 * head_targets_dense if gradient and head_targets else 0)",
        "what every layout needs",
    ),
    total(
        "output",
        "output.targets + output.top_k + output.logits + output.hidden + output.routing",
        "everything that is returned",
    ),
    Rule(
        "head.workspace",
        "0 if head_tokens == 0 else head_rejection if head_bound else head_exact",
        where="dtype_bytes == 2 * B and vocab // tp * tp == vocab",
        checked="pp == 1 and head_chunk_size == 512 and (tp == 1 or checkpoint_holds)",
        applies="output_layer and head_chunked and stage_last",
        why="logits of one chunk of tokens with their statistics",
        source=f"{REFERENCE}; index vectors measured on CPU and H200",
        reference={
            "where": "pp == 1 and dtype_bytes == 2 * B and vocab // tp * tp == vocab and (tp == 1"
            " or checkpoint_holds)",
            "checked": "1",
            "applies": "output_layer",
        },
    ),
    Definition(
        "head_row",
        "layer_tokens * (vocab // tp)",
        "logits of all tokens of a pack on a rank",
    ),
    Rule(
        "head.logits",
        "head_row * (dtype_bytes * (4 if gradient else 3) if head_shifted else dtype_bytes + 4 * B"
        " + (8 * B if head_upcast else 0) + ((dtype_bytes + 4 * B if head_full else dtype_bytes +"
        " 8 * B if head_upcast else 4 * B if head_fused_loss else 0) if gradient else 0))",
        checked="(head_vocab_parallel or head_fused_loss) and (not head_fused_loss or not"
        " gpu_ampere)",
        applies="output_layer and stage_last and (head_full or head_upcast or head_shifted or"
        " head_vocab_parallel or head_fused_loss)",
        why="logits of all tokens and their softmax in fp32, of which a vocabulary-parallel loss"
        " makes the gradient in place, and a fused one beside it; plain PyTorch keeps the gradient"
        " in fp32 and 16 bits; where logits are turned to fp32 and shifted, those copies and the"
        " gradients of both; with a loss in the logits' own type those, the shifted copy, its"
        " softmax, and the gradient of the shift, a row longer than the copies that were freed",
        source="derived; Megatron-LM's functional tests, fused losses on Hopper and Blackwell"
        " (on Ampere more was measured, cause unknown)",
        reference=NOTHING,
    ),
    Rule(
        "head.fused",
        "min(head_row, ceildiv(layer_tokens, ceildiv(vocab, hidden)) * 2 * (vocab // tp)) *"
        " (dtype_bytes + 4 * B)",
        checked="0",
        applies="output_layer and stage_last and head_fused",
        why="projection and loss in one kernel: logits of a chunk whose logits are as large as"
        " the hidden states of all tokens, rounded up to a power of two",
        source="derived; no record measures it",
        reference=NOTHING,
    ),
    Rule(
        "head.deferred",
        "wgrad_deferral * (head_row + layer_tokens * hidden) * dtype_bytes if gradient else 0",
        checked="pp > 1",
        applies="output_layer and stage_last and wgrad_deferral > 0",
        lives="retained",
        why="gradient of the logits and input of the head, kept for each deferred weight gradient",
        source="derived; Megatron-LM's functional tests",
        reference=NOTHING,
    ),
    Rule(
        "output.targets",
        "4 * B * target_entries",
        lives="output",
        why="log-probabilities of the labels, fp32",
        source=REFERENCE,
    ),
    Rule(
        "output.top_k",
        "12 * B * top_k_entries",
        lives="output",
        why="top-k values and indices",
        source=REFERENCE,
    ),
    Rule(
        "output.logits",
        "logits_tokens * vocab * dtype_bytes",
        lives="output",
        why="full logits",
        source=REFERENCE,
    ),
    Rule(
        "output.hidden",
        "hidden_tokens * hidden * dtype_bytes",
        lives="output",
        why="hidden states",
        source=REFERENCE,
    ),
    Rule(
        "output.routing",
        "16 * B * routed_entries",
        lives="output",
        why="routed-expert replay, held for both layouts",
        source=REFERENCE,
    ),
]
