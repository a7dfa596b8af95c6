"""Files as trainers write them, made from the columns that each project publishes.

python tests/sequences/trainers.py FOLDER    writes them all
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PAD, X = 0, -100
P, Q = [11, 12], [11, 12, 13]
"""Two prompts."""
A, B = [21, 22], [31, 32, 33]
"""And a response to each."""
LEFT = [[PAD, *P], Q]
RIGHT = [[*A, PAD], B]
BOTH = [[PAD, *P, *A, PAD], [*Q, *B]]
SEEN = [[0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]
WHOLE = [[*P, *A], [*Q, *B]]
LABELS = [[X, X, *A], [X, X, X, *B]]


class Row(NamedTuple):
    """A file and what it holds: sequences, labelled tokens of each, pads, groups."""

    trainer: str
    name: str
    write: Callable[[Path], None]
    columns: str
    sequences: list[list[int]] = WHOLE
    labelled: list[int] = [2, 3]  # noqa: RUF012
    pads: int = 0
    groups: int | None = None


def _rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def lines(**columns: list[Any]) -> Callable[[Path], None]:
    """JSON lines, compressed if the name says so."""
    text = "".join(json.dumps(row) + "\n" for row in _rows(columns))

    def write(path: Path) -> None:
        data = text.encode()
        if path.suffix == ".zst":
            import pyarrow

            with pyarrow.output_stream(str(path), compression="zstd") as stream:
                stream.write(data)
            return
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)

    return write


def table(**columns: list[Any]) -> Callable[[Path], None]:
    """A table: Parquet, or a file of Arrow."""

    def write(path: Path) -> None:
        import pyarrow as pa
        from pyarrow import feather, parquet

        made = pa.table(columns)
        if path.suffix == ".parquet":
            parquet.write_table(made, path)
        elif path.suffix == ".feather":
            feather.write_feather(made, str(path))
        else:
            with pa.ipc.new_file(str(path), made.schema) as writer:
                writer.write_table(made)

    return write


def saved(**columns: list[Any]) -> Callable[[Path], None]:
    """A dataset as `save_to_disk` leaves it: two shards, in the order that its state names."""

    def write(path: Path) -> None:
        import pyarrow as pa

        path.mkdir()
        made = pa.table(columns)
        names = [f"data-{i:05}-of-00002.arrow" for i in range(2)]
        for i, name in enumerate(names):
            with pa.ipc.new_stream(str(path / name), made.schema) as writer:
                writer.write_table(made.slice(i, 1))
        (path / "dataset_info.json").write_text("{}")
        state = {"_data_files": [{"filename": name} for name in names], "_split": None}
        (path / "state.json").write_text(json.dumps(state))

    return write


def shards(**columns: list[Any]) -> Callable[[Path], None]:
    """A folder of files of Parquet, a row each."""

    def write(path: Path) -> None:
        path.mkdir()
        for i, row in enumerate(_rows(columns)):
            part = {name: [value] for name, value in row.items()}
            table(**part)(path / f"train-{i:05}-of-00002.parquet")

    return write


def arrays(**columns: Any) -> Callable[[Path], None]:
    """An archive of arrays."""
    return lambda path: np.savez(path, **{name: np.array(columns[name]) for name in columns})


def document(value: Any) -> Callable[[Path], None]:
    """One JSON value."""

    def write(path: Path) -> None:
        path.write_text(json.dumps(value, indent=1))

    return write


PACKED = [*P, *A, *Q, *B]
PACKED_LABELS = [X, X, *A, X, X, X, *B]
PACKED_AT = [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]
VERL = {
    "prompts": LEFT,
    "responses": RIGHT,
    "input_ids": BOTH,
    "attention_mask": SEEN,
    "position_ids": [[0, 0, 1, 2, 3, 3], [0, 1, 2, 3, 4, 5]],
    "response_mask": [[1, 1, 0], [1, 0, 1]],
    "rollout_log_probs": [[-0.5, -0.1, 0.0], [-0.5, -0.1, -0.2]],
}
SLIME = {
    "tokens": WHOLE,
    "response_length": [2, 3],
    "group_index": [4, 4],
    "reward": [0.0, 1.0],
    "prompt": ["p", "q"],
}
TABLE = [
    Row(
        "verl",
        "verl.parquet",
        table(**VERL, uid=["7e", "7e"]),
        "prompts responses input_ids attention_mask response_mask uid",
        labelled=[2, 2],
        pads=2,
        groups=1,
    ),
    Row(
        "verl, lines",
        "verl.jsonl",
        lines(**VERL, uid=["7e", "7e"]),
        "prompts responses input_ids attention_mask response_mask uid",
        labelled=[2, 2],
        pads=2,
        groups=1,
    ),
    Row(
        "verl, no whole ids",
        "verl_parts.jsonl",
        lines(**{k: VERL[k] for k in ("prompts", "responses", "attention_mask")}, uid=["a", "b"]),
        "prompts responses attention_mask uid",
        pads=2,
        groups=2,
    ),
    Row(
        "verl, arrays",
        "verl.npz",
        arrays(
            **{k: VERL[k] for k in ("responses", "input_ids", "attention_mask", "response_mask")}
        ),
        "input_ids attention_mask response_mask",
        labelled=[2, 2],
        pads=2,
    ),
    Row(
        "verl, SFT",
        "verl_sft.jsonl",
        lines(
            input_ids=[[*P, *A, PAD, PAD], [*Q, *B]],
            attention_mask=[[1, 1, 1, 1, 0, 0], [1] * 6],
            position_ids=[[0, 1, 2, 3, 3, 3], [0, 1, 2, 3, 4, 5]],
            loss_mask=[[0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1]],
        ),
        "input_ids attention_mask position_ids loss_mask",
        pads=2,
    ),
    Row(
        "slime",
        "slime.jsonl",
        lines(**SLIME, loss_mask=[[1, 1], [1, 0, 1]]),
        "tokens response_length loss_mask group_index",
        labelled=[2, 2],
        groups=1,
    ),
    Row(
        "slime, no mask",
        "slime.json",
        document({"samples": _rows(SLIME)}),
        "tokens response_length group_index",
        groups=1,
    ),
    Row(
        "slime, some masks",
        "slime_masks.json",
        document(
            {
                "rollout_id": 3,
                "samples": [
                    row | {"loss_mask": mask, "remove_sample": mask is None}
                    for row, mask in zip(_rows(SLIME), ([1, 0], None), strict=True)
                ],
            }
        ),
        "tokens response_length loss_mask remove_sample group_index",
        labelled=[1, 0],
        groups=1,
    ),
    Row(
        "slime, columns",
        "slime_columns.json",
        document(
            {
                "tokens": WHOLE,
                "response_lengths": [2, 3],
                "loss_masks": [[1, 1], [0, 0, 1]],
                "rewards": [0.5, 0.5],
                "rollout_ids": [0, 1],
                "truncated": [0, 0],
            }
        ),
        "tokens response_lengths loss_masks rollout_ids",
        labelled=[2, 1],
        groups=2,
    ),
    Row(
        "TRL, GRPO padded",
        "trl_grpo.npz",
        arrays(
            prompt_ids=LEFT,
            prompt_mask=[[0, 1, 1], [1, 1, 1]],
            completion_ids=RIGHT,
            completion_mask=[[1, 1, 0], [1, 1, 1]],
            advantages=[0.1, 0.2],
        ),
        "prompt_ids prompt_mask completion_ids completion_mask",
        pads=2,
    ),
    Row(
        "TRL, unpadded",
        "trl_sft.jsonl.gz",
        lines(input_ids=WHOLE, completion_mask=[[0, 0, 1, 1], [0, 0, 0, 1, 1, 1]]),
        "input_ids completion_mask",
    ),
    Row(
        "TRL, assistant masks",
        "trl_chat.jsonl.zst",
        lines(input_ids=WHOLE, assistant_masks=[[0, 0, 1, 1], [0, 0, 0, 1, 0, 0]]),
        "input_ids assistant_masks",
        labelled=[2, 1],
    ),
    Row(
        "TRL, packed",
        "trl_packed.arrow",
        table(input_ids=[PACKED], labels=[PACKED_LABELS], seq_lengths=[[4, 6]]),
        "input_ids labels seq_lengths",
    ),
    Row(
        "TRL, packed by positions",
        "trl_packed.jsonl",
        lines(input_ids=[PACKED], labels=[PACKED_LABELS], position_ids=[PACKED_AT]),
        "input_ids labels position_ids",
    ),
    Row(
        "TRL, a batch a line",
        "trl_batch.jsonl",
        lines(
            input_ids=[[[*P, *A, PAD, PAD], [*Q, *B]], [[*P, *A]]],
            attention_mask=[[[1] * 4 + [0] * 2, [1] * 6], [[1] * 4]],
            labels=[[[X, X, *A, X, X], LABELS[1]], [LABELS[0]]],
            uid=[["a", "b"], ["a"]],
        ),
        "input_ids attention_mask labels uid",
        [*WHOLE, [*P, *A]],
        [2, 3, 2],
        pads=2,
        groups=2,
    ),
    Row(
        "TRL, rewards",
        "trl_rewards.jsonl",
        lines(
            input_ids_chosen=[WHOLE[0]],
            attention_mask_chosen=[[1] * 4],
            input_ids_rejected=[[*WHOLE[1], PAD]],
            attention_mask_rejected=[[1] * 6 + [0]],
        ),
        "input_ids_chosen input_ids_rejected attention_mask_rejected",
        labelled=[4, 6],
        pads=1,
        groups=1,
    ),
    Row(
        "TRL, DPO",
        "trl_dpo.jsonl",
        lines(prompt_ids=[P], chosen_ids=[A], rejected_ids=[B]),
        "prompt_ids chosen_ids rejected_ids",
        [[*P, *A], [*P, *B]],
        groups=1,
    ),
    Row(
        "Transformers, flattened",
        "flat.jsonl",
        lines(
            input_ids=[PACKED], labels=[PACKED_LABELS], cu_seq_lens_q=[[0, 4, 10]], max_length_q=[6]
        ),
        "input_ids labels cu_seq_lens_q",
    ),
    Row(
        "OpenRLHF",
        "openrlhf.jsonl",
        lines(
            sequences=BOTH,
            attention_mask=SEEN,
            action_mask=[[False, False, True, True, False], [False, False, True, True, True]],
            prompts=["p", "q"],
            labels=["4", "2"],
            rewards=[0.0, 1.0],
        ),
        "sequences attention_mask action_mask",
        pads=2,
    ),
    Row(
        "OpenRLHF, lengths",
        "openrlhf_lengths.parquet",
        table(
            sequences=[[*P, *A, PAD, PAD], [*Q, *B]],
            attention_mask=[[1, 1, 1, 1, 0, 0], [1] * 6],
            response_length=[2, 3],
            total_length=[4, 6],
        ),
        "sequences attention_mask response_length",
        pads=2,
    ),
    Row(
        "TRL, KTO",
        "trl_kto.jsonl",
        lines(
            prompt_input_ids=[P, Q],
            completion_input_ids=WHOLE,
            completion_labels=LABELS,
            label=[True, False],
        ),
        "completion_input_ids completion_labels",
    ),
    Row(
        "OpenRLHF, actions",
        "openrlhf_actions.parquet",
        table(
            sequences=BOTH,
            attention_mask=SEEN,
            action_mask=[[1, 1, 0], [1, 1, 1]],
            num_actions=[3, 3],
        ),
        "sequences attention_mask action_mask num_actions",
        pads=2,
    ),
    Row(
        "NeMo-RL",
        "nemo_rl.jsonl",
        lines(
            input_ids=[[*P, *A, PAD, PAD], [*Q, *B]],
            input_lengths=[4, 6],
            token_mask=[[0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1]],
            sample_mask=[1.0, 0.0],
        ),
        "input_ids input_lengths token_mask sample_mask",
        labelled=[2, 0],
        pads=2,
    ),
    Row(
        "NeMo-RL, messages",
        "nemo_rl_log.jsonl",
        lines(
            message_log=[
                [
                    {"role": "user", "content": "p", "token_ids": p},
                    {"role": "assistant", "content": "a", "token_ids": a},
                ]
                for p, a in ((P, A), (Q, B))
            ],
            loss_multiplier=[1.0, 0.0],
            idx=[0, 1],
        ),
        "message_log loss_multiplier",
        labelled=[2, 0],
    ),
    Row(
        "prime-rl",
        "prime_rl.jsonl",
        lines(
            prompt_ids=[P, Q],
            prompt_mask=[[False] * 2, [False] * 3],
            completion_ids=[A, B],
            completion_mask=[[True] * 2, [True, False, True]],
            completion_logprobs=[[-0.1] * 2, [-0.1] * 3],
            advantage=[0.5, -0.5],
            example_id=[1, 1],
        ),
        "prompt_ids prompt_mask completion_ids completion_mask example_id",
        labelled=[2, 2],
        groups=1,
    ),
    Row(
        "prime-rl, micro-batch",
        "prime_rl_batch.jsonl",
        lines(
            input_ids=[PACKED],
            position_ids=[PACKED_AT],
            loss_mask=[[label != X for label in PACKED_LABELS]],
            advantages=[[0.1] * 10],
        ),
        "input_ids position_ids loss_mask",
    ),
    Row(
        "axolotl",
        "axolotl",
        saved(
            input_ids=WHOLE,
            attention_mask=[[1] * 4, [1] * 6],
            labels=LABELS,
            position_ids=[[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]],
            length=[4, 6],
        ),
        "input_ids attention_mask labels position_ids",
    ),
    Row(
        "LLaMA-Factory",
        "llama_factory.jsonl",
        lines(
            input_ids=WHOLE,
            attention_mask=[[1] * 4, [1] * 6],
            labels=LABELS,
            images=[None, None],
        ),
        "input_ids attention_mask labels",
    ),
    Row(
        "LLaMA-Factory, neat packing",
        "llama_factory_neat.parquet",
        table(
            input_ids=[[*PACKED, PAD, PAD]],
            labels=[[*PACKED_LABELS, X, X]],
            attention_mask=[[1] * 4 + [2] * 6 + [0] * 2],
            position_ids=[[*PACKED_AT, 0, 0]],
        ),
        "input_ids labels attention_mask",
        pads=2,
    ),
    Row(
        "LLaMA-Factory, packing",
        "llama_factory_packed.jsonl",
        lines(
            input_ids=[[*PACKED, PAD, PAD]],
            labels=[[*PACKED_LABELS, X, X]],
            attention_mask=[[1] * 12],
            position_ids=[[*PACKED_AT, 0, 0]],
        ),
        "input_ids labels attention_mask position_ids",
        pads=2,
    ),
    Row(
        "ms-swift",
        "swift.jsonl",
        lines(
            input_ids=WHOLE,
            labels=LABELS,
            length=[4, 6],
            loss_scale=[[0.0, 0.0, 1.0, 0.5], [0, 0, 0, 1.0, 0.0, 2.0]],
        ),
        "input_ids labels loss_scale",
        labelled=[2, 2],
    ),
    Row(
        "ms-swift, packed images",
        "swift_images.jsonl",
        lines(
            input_ids=[PACKED],
            labels=[PACKED_LABELS],
            length=[10],
            position_ids=[[[[0, 0, 0, 2, 0, 1, 1, 1, 2, 3]]] * 3],
        ),
        "input_ids labels position_ids",
    ),
    Row(
        "Transformers, axes of positions",
        "axes.npz",
        arrays(
            input_ids=[PACKED, PACKED],
            labels=[PACKED_LABELS] * 2,
            position_ids=[[PACKED_AT] * 2] * 3,
        ),
        "input_ids labels position_ids",
        [*WHOLE, *WHOLE],
        [2, 3, 2, 3],
    ),
    Row(
        "ms-swift, rollouts",
        "swift_rollouts.jsonl",
        lines(
            prompt_token_ids=[P, Q],
            response_token_ids=[[A], [B[:2], B[2:]]],
            response_loss_mask=[[[1, 1]], [[1, 0], [1]]],
        ),
        "prompt_token_ids response_token_ids response_loss_mask",
        labelled=[2, 2],
    ),
    Row(
        "torchtune",
        "torchtune.jsonl",
        lines(
            tokens=WHOLE,
            labels=LABELS,
            mask=[[True] * 2 + [False] * 2, [True] * 3 + [False] * 3],
        ),
        "tokens labels mask",
    ),
    Row(
        "torchtune, packed",
        "torchtune_packed.feather",
        table(
            tokens=[[*PACKED, PAD, PAD]],
            labels=[[*PACKED_LABELS, X, X]],
            input_pos=[[*PACKED_AT, 6, 7]],
            seq_lens=[[4, 6, 2]],
        ),
        "tokens labels seq_lens",
        pads=2,
    ),
    Row(
        "ART",
        "art.jsonl",
        lines(
            token_ids=WHOLE,
            input_pos=[[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]],
            assistant_mask=[[0, 0, 1, 1], [0, 0, 0, 1, 1, 1]],
            logprobs=[[-0.5] * 4, [-0.5] * 6],
            prompt_id=[8, 9],
            prompt_length=[2, 3],
            advantage=[0.1, 0.2],
            weight=[1.0, 1.0],
        ),
        "token_ids assistant_mask prompt_id prompt_length",
        groups=2,
    ),
    Row(
        "ART, packed tensors",
        "art_packed.npz",
        arrays(
            tokens=[[*P, *A, *B, PAD]],
            group_ids=[[1, 1, 2, 2, 3, 3, 3, -1]],
            parent_ids=[[1, 1, 1, 1, 1, 1, 1, -1]],
            input_pos=[[0, 1, 2, 3, 2, 3, 4, 0]],
            assistant_mask=[[0, 0, 1, 1, 1, 1, 1, 0]],
        ),
        "tokens group_ids parent_ids assistant_mask",
        [[*P, *A], [*P, *B]],
        pads=1,
        groups=1,
    ),
    Row(
        "Hugging Face datasets",
        "shards",
        shards(input_ids=WHOLE, attention_mask=[[1] * 4, [1] * 6]),
        "input_ids attention_mask",
        labelled=[4, 6],
    ),
    Row(
        "SkyRL",
        "skyrl.ndjson",
        lines(
            prompt_token_ids=[P, Q],
            response_ids=[A, B],
            loss_masks=[[1, 1], [1, 1, 0]],
            rewards=[0.0, 1.0],
        ),
        "prompt_token_ids response_ids loss_masks",
        labelled=[2, 2],
    ),
    Row(
        "vLLM",
        "vllm.jsonl",
        lines(prompt_token_ids=[P, Q], token_ids=[A, B], text=["a", "b"]),
        "prompt_token_ids token_ids",
    ),
]

if __name__ == "__main__":
    for row in TABLE:
        row.write(Path(sys.argv[1]) / row.name)
