"""Drop-ins for ``verl.utils.seqlen_balancing``.

The cap holds, in the fewest micro-batches that were found; the largest work of a micro-batch is at
most that of the differencing method in as many. ``planner=`` caps bytes besides tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from waveplan._core import balance
from waveplan.errors import InputError
from waveplan.integrations.balance import deal, lists, whole
from waveplan.refusal import WaveRefused

if TYPE_CHECKING:
    from waveplan.planner import Planner

__all__ = [
    "get_group_balanced_partitions",
    "get_seqlen_balanced_partitions",
    "micro_batches",
    "rearrange_micro_batches",
]

LINEAR = 24576
"""Work of a token beside the square of the sequence's length: verl's for a dense model of 7B."""


def _work(lengths: Any) -> Any:
    lengths = np.asarray(lengths, np.int64)
    return LINEAR * lengths + lengths**2


def get_seqlen_balanced_partitions(
    seqlen_list: Sequence[int], k_partitions: int, equal_size: bool
) -> list[list[int]]:
    """Return the items of each of ``k_partitions`` parts with balanced sums, ascending.

    Raises:
        AssertionError: fewer items than parts, or with ``equal_size`` no multiple of them.
    """
    items = len(seqlen_list)
    assert items >= k_partitions, f"number of items {items} is below k_partitions {k_partitions}"
    assert not equal_size or items % k_partitions == 0, f"{items} % {k_partitions} != 0"
    made = balance(whole(seqlen_list), parts=k_partitions, equal_size=equal_size)
    return lists(made.parts)


def get_group_balanced_partitions(
    seqlen_list: Sequence[int], uid_list: Sequence[Any], k_partitions: int
) -> list[list[int]]:
    """Return the items of each part; neighbours of one uid stay together, as many uids in each.

    Raises:
        AssertionError: not one uid a length, fewer groups than parts, or no multiple of them.
    """
    assert len(seqlen_list) == len(uid_list), "seqlen_list and uid_list differ in length"
    starts = [i for i, uid in enumerate(uid_list) if i == 0 or uid != uid_list[i - 1]]
    assert len(starts) >= k_partitions, (
        f"number of uid groups {len(starts)} is below k_partitions {k_partitions}"
    )
    groups = np.split(np.arange(len(uid_list)), starts[1:])
    work = _work(seqlen_list)
    sums = [int(work[group].sum()) for group in groups]
    parts = get_seqlen_balanced_partitions(sums, k_partitions, equal_size=True)
    return [sorted(int(i) for group in part for i in groups[group]) for part in parts]


def micro_batches(
    lengths: Sequence[int],
    max_token_len: int | None,
    *,
    least: int = 1,
    multiple_of: int = 1,
    group_size: int = 1,
    middle: bool = True,
    reduce_max: Any = lambda values: values,
    planner: Planner | None = None,
) -> list[list[int]]:
    """Return the sequences of each micro-batch of this rank, without torch.

    Args:
        least: least number of micro-batches.
        group_size: so many neighbours stay together.
        middle: the micro-batches of most work stand in the middle, away from a pipeline's ends.
        reduce_max: the element-wise maximum over ranks, which then make equally many.

    Raises:
        ValueError: a group is longer than ``max_token_len``, or a rank has fewer groups than there
            are micro-batches; on every rank.
    """
    sizes = np.asarray(lengths, np.int64).reshape(-1, group_size)
    work, tokens = _work(sizes).sum(1), sizes.sum(1)
    groups, failed = len(tokens), None
    longest, fewest = reduce_max([int(tokens.max(initial=0)), -groups])
    if max_token_len is not None and longest > max_token_len:
        raise ValueError(f"a group of {longest} tokens is above max_token_len {max_token_len}")
    count, own = -(-least // multiple_of) * multiple_of, 0
    while True:
        if count > -fewest:
            message = f"{count} micro-batches are needed, but a rank has {-fewest} groups only"
            raise ValueError(message) from failed
        try:
            if own != count:
                made = deal(tokens, work, max_token_len, count, multiple_of, planner, sizes)
                own = len(made.parts)
        except (InputError, WaveRefused) as error:
            own, failed = groups + 1, error
        (agreed,) = reduce_max([own])
        if agreed == count:
            break
        count = agreed
    parts = lists(made.parts)
    if middle:
        parts.sort(key=lambda part: (int(work[part].sum()), part[0]), reverse=True)
        parts = [*parts[::2][::-1], *parts[1::2]]
    return [[i * group_size + j for i in part for j in range(group_size)] for part in parts]


def rearrange_micro_batches(
    batch: Any,
    max_token_len: int | None,
    dp_group: Any = None,
    num_batches_divided_by: int | None = None,
    same_micro_num_in_dp: bool = True,
    min_num_micro_batch: int | None = None,
    use_dynamic_bsz_balance: bool = True,
    force_group_size: int = 1,
    *,
    planner: Planner | None = None,
) -> tuple[list[Any], list[list[int]]]:
    """Return the micro-batches of a TensorDict, and the rows of each.

    Args:
        max_token_len: most tokens of a micro-batch; None with a planner: bytes alone decide.
        planner: prices micro-batches; none requires more bytes than it has available.

    Raises:
        AssertionError: ``max_token_len`` is below the longest row, or the rows are no groups.
        ValueError: as `micro_batches`.
    """
    ids = batch["input_ids"]
    if getattr(ids, "is_nested", False):
        lengths = ids.offsets().diff().tolist()
        longest = max(lengths)
    else:
        mask = batch["attention_mask"]
        lengths, longest = mask.sum(1).tolist(), mask.shape[-1]
    assert max_token_len is None or max_token_len >= longest, (
        f"max_token_len {max_token_len} is below the longest sequence, {longest}"
    )
    assert len(lengths) % force_group_size == 0, (
        f"batch size {len(lengths)} is no multiple of force_group_size {force_group_size}"
    )
    rows = micro_batches(
        [int(length) for length in lengths],
        max_token_len,
        least=min_num_micro_batch or 1,
        multiple_of=num_batches_divided_by or 1,
        group_size=force_group_size,
        middle=use_dynamic_bsz_balance,
        reduce_max=_reduction(dp_group if same_micro_num_in_dp else None),
        planner=planner,
    )
    select = _selection()
    return [select(batch, part) for part in rows], rows


def _reduction(group: Any) -> Any:
    """The maximum over a process group; this process alone without one."""
    if group is None:
        return lambda values: values
    from torch import distributed, tensor

    if not distributed.is_initialized():
        return lambda values: values
    device = "cuda" if distributed.get_backend(group) == "nccl" else "cpu"

    def reduce_max(values: list[int]) -> list[int]:
        shared = tensor([int(value) for value in values], device=device)
        distributed.all_reduce(shared, op=distributed.ReduceOp.MAX, group=group)
        return [int(value) for value in shared.tolist()]

    return reduce_max


def _selection() -> Any:
    """How rows of a batch are picked: verl's own function where verl is installed."""
    try:
        from verl.utils.tensordict_utils import index_select_tensor_dict
    except ImportError:
        return lambda batch, rows: batch[rows]
    return index_select_tensor_dict
