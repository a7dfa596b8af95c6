"""Names of columns in files of trainers."""

from __future__ import annotations

IGNORED = -100
"""A label of this value is not trained on."""

WHOLE = ("input_ids", "tokens", "token_ids", "sequences")
"""Token ids of a sequence; with pads where a mask or lengths say so."""
PROMPT = ("prompt_ids", "prompt_token_ids", "prompt_input_ids", "prompts", "raw_prompt_ids")
RESPONSE = (
    *("completion_ids", "response_ids", "responses", "completion_token_ids", "response_token_ids"),
    *("completion_input_ids", "output_ids", "output_token_ids"),
)
ATTENTION = ("attention_mask",)
PROMPT_ATTENTION = ("prompt_attention_mask",)
RESPONSE_ATTENTION = ("completion_attention_mask", "response_attention_mask")
LENGTHS = ("input_lengths", "unpadded_sequence_lengths")
LABELS = ("labels", "completion_labels")
MASKS = (
    *("loss_mask", "loss_masks", "response_mask", "completion_mask", "assistant_masks"),
    *("assistant_mask", "action_mask", "token_mask", "token_loss_mask", "response_loss_mask"),
    *("tool_mask", "env_mask", "label_mask"),
)
"""1 for a token that is trained on."""
AT_END = ("response_mask", "action_mask", "response_loss_mask")
"""Masks of the response alone where they are shorter than the ids."""
WEIGHTS = ("loss_scale",)
SAMPLES = ("sample_mask", "sample_loss_mask", "loss_multiplier", "remove_sample")
"""Of a whole sequence; ``remove_sample`` is true where nothing is trained on."""
RESPONSE_LENGTH = ("response_length", "response_lengths", "num_actions")
PROMPT_LENGTH = ("first_target", "prompt_length", "prompt_len")
PACKED = ("seq_lengths", "seq_lens")
CUMULATIVE = ("cu_seqlens", "cu_seq_lens", "cu_seq_lens_q", "cu_seqlens_q")
POSITIONS = ("text_position_ids", "position_ids", "input_pos")
NUMBERED = ("seq_idx", "segment_ids", "sequence_ids")
GROUP = (
    *("group", "group_id", "uid", "group_index", "prompt_id", "prompt_uid", "example_id"),
    *("rollout_id", "rollout_ids"),
)
PAIRS = ("chosen", "rejected")
PAIRED = ("{}_input_ids", "{}_ids", "input_ids_{}")
"""What the ids of a pair are called."""
GIVEN = tuple(
    dict.fromkeys(
        (
            *(*WHOLE, *PROMPT, *RESPONSE, *ATTENTION, *PROMPT_ATTENTION, *RESPONSE_ATTENTION),
            *(*LENGTHS, *LABELS, *MASKS, "prompt_mask", "mask", *WEIGHTS, *SAMPLES),
            *(*RESPONSE_LENGTH, *PROMPT_LENGTH, *PACKED, *CUMULATIVE, *POSITIONS, *NUMBERED),
            *(*GROUP, "message_log", "group_ids", "parent_ids"),
            *(name.format(pair) for pair in PAIRS for name in PAIRED),
            *(
                name.format(pair, column)
                for pair in PAIRS
                for name in ("{0}_{1}", "{1}_{0}")
                for column in ("labels", "attention_mask")
            ),
        )
    )
)
"""Names of columns that are read."""
TEXT = (
    "model_input",
    "messages",
    "prompt",
    "text",
    "conversations",
    "completion",
    "chosen",
    "messages_and_choices",
)
WANTED = (
    "give input_ids, tokens or token_ids, or prompt_ids and completion_ids, or say which column "
    "holds them, such as --column input_ids=NAME (in Python columns={'input_ids': 'NAME'})"
)
