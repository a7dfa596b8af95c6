"""Drop-in for ``slime.utils.dp_schedule`` and ``miles.utils.dp_schedule``.

In a step the fewest micro-batches that keep the cap, balanced, a multiple of what the ranks need;
an oversized sample is alone, no micro-batch is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from waveplan._core import balance
from waveplan.errors import InputError
from waveplan.integrations.balance import deal, lists, whole

if TYPE_CHECKING:
    from waveplan.planner import Planner

__all__ = ["build_dp_schedule"]


def build_dp_schedule(
    args: Any,
    train_parallel_config: Mapping[str, Any],
    total_lengths: Sequence[int],
    *,
    global_batch_size: int,
    rollout_indices: Sequence[int] | None = None,
    work: Callable[[int], float] | None = None,
    planner: Planner | None = None,
) -> tuple[list[list[int]], list[list[list[int]]], list[int], list[int]]:
    """Return each rank's samples and micro-batches, each step's number of these and of rollouts.

    Args:
        args: has ``use_dynamic_batch_size``, ``max_tokens_per_gpu``, ``micro_batch_size`` and
            ``balance_data``; ``allow_partial_train_step`` keeps rollouts after the last full step.
        rollout_indices: the rollout of each sample; by default each its own.
        work: of a sample of so many tokens, which is balanced; by default its tokens.
        planner: prices micro-batches; none requires more bytes than it has available.

    Raises:
        AssertionError: too few rollouts or samples, or fixed micro-batches of no fitting number.
    """
    dp = train_parallel_config["dp_size"]
    virtual = (train_parallel_config["vpp_size"] or 1) > 1
    align = dp * (train_parallel_config["microbatch_group_size_per_vp_stage"] if virtual else 1)
    cap = None
    if args.use_dynamic_batch_size:
        assert args.max_tokens_per_gpu is not None or planner is not None
        if args.max_tokens_per_gpu is not None:
            cap = args.max_tokens_per_gpu * train_parallel_config["cp_size"]
    partitions: list[list[int]] = [[] for _ in range(dp)]
    batches: list[list[list[int]]] = [[] for _ in range(dp)]
    counts: list[int] = []
    sizes: list[int] = []
    rollouts = range(len(total_lengths)) if rollout_indices is None else rollout_indices
    for rollouts_now, samples in _steps(args, rollouts, global_batch_size, dp):
        number = len(sizes)
        sizes.append(rollouts_now)
        lengths = [total_lengths[i] for i in samples]
        assert len(samples) >= dp, f"step {number} has {len(samples)} samples, below dp_size {dp}"
        costs = whole(lengths if work is None else [work(length) for length in lengths])
        if args.use_dynamic_batch_size:
            try:
                made = lists(deal(lengths, costs, cap, align, align, planner).parts)
            except InputError as error:
                raise AssertionError(f"step {number}: {error}") from None
        else:
            made = _fixed(len(samples), args.micro_batch_size, align)
        sums = [sum(costs[i] for i in batch) for batch in made]
        for rank, own in enumerate(_ranks(sums, dp, args.balance_data)):
            for batch in own:
                start = len(partitions[rank])
                partitions[rank] += [samples[i] for i in made[batch]]
                batches[rank].append(list(range(start, len(partitions[rank]))))
        counts.append(len(made) // dp)
    return partitions, batches, counts, sizes


def _steps(
    args: Any, rollout_indices: Sequence[int], size: int, dp: int
) -> list[tuple[int, list[int]]]:
    """The number of rollouts and the samples of each step; rollouts in order of appearance."""
    samples: dict[int, list[int]] = {}
    for i, rollout in enumerate(rollout_indices):
        samples.setdefault(rollout, []).append(i)
    rollouts = list(samples.values())
    assert len(rollouts) >= size, f"num_rollouts {len(rollouts)} is below global_batch_size {size}"
    steps = [rollouts[i : i + size] for i in range(0, len(rollouts), size)]
    partial = getattr(args, "allow_partial_train_step", False) and args.use_dynamic_batch_size
    if len(steps[-1]) < size and not (partial and sum(map(len, steps[-1])) >= dp):
        steps.pop()
    return [(len(step), [i for rollout in step for i in rollout]) for step in steps]


def _fixed(samples: int, size: int, align: int) -> list[list[int]]:
    """Consecutive micro-batches of a fixed size."""
    made = [list(range(i, min(i + size, samples))) for i in range(0, samples, size)]
    assert len(made) % align == 0, (
        f"static path: {samples} samples make {len(made)} micro-batches of {size}, which is no "
        f"multiple of {align} (dp_size * mb_group)"
    )
    return made


def _ranks(sums: list[int], dp: int, balanced: bool) -> list[list[int]]:
    """The micro-batches of each rank, those of most work first, so that ranks run alike."""
    order = sorted(range(len(sums)), key=lambda i: (-sums[i], i))
    if not balanced:
        return [order[rank::dp] for rank in range(dp)]
    place = {batch: at for at, batch in enumerate(order)}
    parts = lists(balance(sums, parts=dp, equal_size=True).parts)
    return [sorted(part, key=place.__getitem__) for part in parts]
