"""Drop-ins for other trainers: their published tests' cases, restated, and what they promise."""

from __future__ import annotations

import random
import threading
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from slow.balance import falling, first_fit

from waveplan import Planner, Requests, Topology, Training, WaveRefused, models
from waveplan.integrations.balance import deal, nemo_rl, slime, trl, verl, whole

LENGTHS = [50, 60, 80, 90, 40, 45, 100, 110]


def tokens(parts: list[list[int]], lengths: list[int]) -> list[int]:
    return [sum(lengths[i] for i in part) for part in parts]


def flat(parts: list[list[int]]) -> list[int]:
    return sorted(i for part in parts for i in part)


class Batch(dict[str, Any]):
    """Columns by name, rows by number, as a TensorDict."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return super().__getitem__(key)
        return Batch({name: column[key] for name, column in self.items()})


def batch(lengths: list[int]) -> Batch:
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    ids = np.where(mask, np.arange(len(lengths))[:, None], 0)
    return Batch(input_ids=ids, attention_mask=mask.astype(np.int64))


@pytest.fixture
def planner() -> Planner:
    return Planner(models.get("qwen3-0.6b"), Topology(), Training(lora_rank=8), "3 GiB")


class TestVerl:
    @pytest.mark.parametrize("equal", [False, True])
    @pytest.mark.parametrize(("values", "parts"), [
        ([8] * 6, 3), ([1, 2, 3, 4, 5, 6, 7, 8], 2), ([10, 20, 30, 40], 4), ([4, 8, 15, 16], 1),
        ([10, 1, 5, 3], 2), ([10, 20, 30, 40, 50, 60], 2), ([0, 0, 0, 0], 2),
    ])  # fmt: skip
    def test_partitions(self, values: list[int], parts: int, equal: bool) -> None:
        made = verl.get_seqlen_balanced_partitions(values, parts, equal)
        assert len(made) == parts
        assert flat(made) == list(range(len(values)))
        assert all(part and part == sorted(part) for part in made)
        assert not equal or len({len(part) for part in made}) == 1

    def test_partitions_are_refused(self) -> None:
        with pytest.raises(AssertionError, match=r"number of items.*k_partitions"):
            verl.get_seqlen_balanced_partitions([4, 8], k_partitions=3, equal_size=False)
        with pytest.raises(AssertionError, match="5 % 2 != 0"):
            verl.get_seqlen_balanced_partitions([1, 2, 3, 4, 5], 2, equal_size=True)

    def test_uids_stay_together(self) -> None:
        uids = list("aabbbccd")
        made = verl.get_group_balanced_partitions(LENGTHS, uids, 2)
        assert flat(made) == list(range(8))
        homes = [
            {i for i, part in enumerate(made) for j in part if uids[j] == uid} for uid in "abcd"
        ]
        assert [len(home) for home in homes] == [1] * 4
        with pytest.raises(AssertionError, match="uid groups 4 is below"):
            verl.get_group_balanced_partitions(LENGTHS, uids, 5)
        with pytest.raises(AssertionError, match="4 % 3 != 0"):
            verl.get_group_balanced_partitions(LENGTHS, uids, 3)

    @pytest.mark.parametrize("options", [
        {}, {"min_num_micro_batch": 7}, {"num_batches_divided_by": 4},
        {"force_group_size": 2, "max_token_len": 210},
        {"force_group_size": 4, "max_token_len": 400}, {"use_dynamic_bsz_balance": False},
        {"max_token_len": 10_000},
    ])  # fmt: skip
    def test_micro_batches(self, options: dict[str, Any]) -> None:
        given = {"max_token_len": 200} | options
        rows = batch(LENGTHS)
        batches, indices = verl.rearrange_micro_batches(rows, **given)
        assert max(tokens(indices, LENGTHS)) <= given["max_token_len"]
        order = [i for part in indices for i in part]
        joined = np.concatenate([one["input_ids"] for one in batches])
        assert (joined[np.argsort(order)] == rows["input_ids"]).all()
        size = given.get("force_group_size", 1)
        for part in indices:
            assert [i // size for i in part[::size]] == [i // size for i in part[size - 1 :: size]]
        assert len(indices) >= given.get("min_num_micro_batch", 1)
        assert len(indices) % given.get("num_batches_divided_by", 1) == 0
        if not options:
            assert len(indices) == 3  # as many as 575 tokens need

    def test_the_busiest_stand_in_the_middle(self) -> None:
        made = verl.micro_batches([100, 90, 80, 70, 60, 10, 20], 100)
        work = tokens(made, [100, 90, 80, 70, 60, 10, 20])
        assert work.index(max(work)) in (len(work) // 2, (len(work) - 1) // 2)

    @pytest.mark.parametrize(("error", "options", "words"), [
        (AssertionError, {"max_token_len": 109}, "max_token_len 109"),
        (AssertionError, {"force_group_size": 3}, "no multiple of force_group_size 3"),
        (ValueError, {"force_group_size": 2}, "group of 210 tokens"),
        (ValueError, {"min_num_micro_batch": 9}, "9 micro-batches are needed"),
        (ValueError, {"max_token_len": 110, "num_batches_divided_by": 5}, "has 8 groups only"),
    ])  # fmt: skip
    def test_refusals(self, error: type[Exception], options: dict[str, Any], words: str) -> None:
        with pytest.raises(error, match=words):
            verl.rearrange_micro_batches(batch(LENGTHS), **({"max_token_len": 120} | options))

    def test_ranks_make_equally_many(self) -> None:
        ranks = [[100] * 4, [100] * 9, [30] * 6]
        made, values, barrier = {}, {}, threading.Barrier(len(ranks), timeout=60)

        def run(rank: int) -> None:
            def reduce_max(own: list[int]) -> list[int]:
                values[rank] = own
                barrier.wait()
                most = np.max(list(values.values()), axis=0).tolist()
                barrier.wait()
                return most

            try:
                made[rank] = verl.micro_batches(ranks[rank], 300, reduce_max=reduce_max)
            except ValueError as error:
                made[rank] = str(error)

        def all_ranks() -> list[Any]:
            threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(ranks))]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            return [made[rank] for rank in range(len(ranks))]

        assert [len(batches) for batches in all_ranks()] == [3, 3, 3]
        ranks[0] = [100] * 2
        assert set(all_ranks()) == {"3 micro-batches are needed, but a rank has 2 groups only"}
        ranks[1] = [100, 400]
        assert set(all_ranks()) == {"a group of 400 tokens is above max_token_len 300"}


def schedule_args(dynamic: bool = True, **options: Any) -> SimpleNamespace:
    base = {"micro_batch_size": 1, "max_tokens_per_gpu": None, "balance_data": False}
    return SimpleNamespace(use_dynamic_batch_size=dynamic, **(base | options))


def config(dp: int, virtual: int | None = 1, group: int | None = 1, cp: int = 1) -> dict[str, Any]:
    sizes = {"dp_size": dp, "cp_size": cp, "vpp_size": virtual}
    return sizes | {"microbatch_group_size_per_vp_stage": group}


class TestSlime:
    def check(self, made: Any, kept: list[int], lengths: list[int], cap: int | None) -> None:
        partitions, batches, counts, _ = made
        assert sorted(i for rank in partitions for i in rank) == kept
        for samples, own in zip(partitions, batches, strict=True):
            assert len(own) == sum(counts)
            assert [i for one in own for i in one] == list(range(len(samples)))
            for one in own:
                assert one
                total = sum(lengths[samples[i]] for i in one)
                assert cap is None or total <= cap or len(one) == 1

    @pytest.mark.parametrize(
        ("args", "parallel", "lengths", "rollouts", "size", "counts", "sizes", "kept"),
        [
            (schedule_args(False, micro_batch_size=2), config(4), [10] * 16, None, 16, [2], [16],
             16),
            (schedule_args(False, micro_batch_size=2, balance_data=True), config(2),
             [1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1], None, 8, [2, 2], [8, 8], 16),
            (schedule_args(max_tokens_per_gpu=10), config(2), [5] * 8, None, 8, [2], [8], 8),
            (schedule_args(max_tokens_per_gpu=10), config(2), [15, *[3] * 7], None, 8, [2], [8], 8),
            (schedule_args(max_tokens_per_gpu=8), config(2, 2, 2), [4] * 32, None, 16, [4, 4],
             [16, 16], 32),
            (schedule_args(max_tokens_per_gpu=50), config(2), [10] * 8, [0, 0, 1, 1, 2, 2, 3, 3], 2,
             [1, 1], [2, 2], 8),
            (schedule_args(max_tokens_per_gpu=12), config(1, None, None), [3] * 9,
             [0, 0, 0, 1, 1, 2, 2, 2, 2], 1, [1, 1, 1], [1, 1, 1], 9),
            (schedule_args(max_tokens_per_gpu=12), config(1), [3] * 8, [0, 0, 1, 2, 2, 3, 4, 4], 2,
             [1, 1], [2, 2], 6),
            (schedule_args(max_tokens_per_gpu=12, allow_partial_train_step=True), config(1),
             [3] * 8, [0, 0, 1, 2, 2, 3, 4, 4], 2, [1, 1, 1], [2, 2, 1], 8),
            (schedule_args(max_tokens_per_gpu=12, allow_partial_train_step=True), config(2),
             [3] * 5, [0, 0, 1, 1, 2], 2, [1], [2], 4),
        ],
    )  # fmt: skip
    def test_published_cases(
        self, args: Any, parallel: dict[str, Any], lengths: list[int], rollouts: list[int] | None,
        size: int, counts: list[int], sizes: list[int], kept: int,
    ) -> None:  # fmt: skip
        made = slime.build_dp_schedule(
            args, parallel, lengths, global_batch_size=size, rollout_indices=rollouts
        )
        assert made[2:] == (counts, sizes)
        self.check(made, list(range(kept)), lengths, args.max_tokens_per_gpu)

    def test_random_lengths(self) -> None:
        draw = random.Random(7)
        for _ in range(60):
            dp = draw.choice([1, 2, 4])
            lengths = [draw.randint(1, 40) for _ in range(dp * draw.choice([4, 8, 16]))]
            cap, balanced = draw.randint(20, 60), draw.random() < 0.5
            args = schedule_args(max_tokens_per_gpu=cap, balance_data=balanced)
            made = slime.build_dp_schedule(
                args, config(dp), lengths, global_batch_size=len(lengths), rollout_indices=None
            )
            self.check(made, list(range(len(lengths))), lengths, cap)
            theirs = len(first_fit(lengths, cap, range(len(lengths))))
            assert made[2] <= [-(-theirs // dp)]
            for own in zip(*made[1], strict=True):
                assert len(own) == dp

    @pytest.mark.parametrize(("args", "dp", "lengths", "size", "words"), [
        (schedule_args(max_tokens_per_gpu=12), 1, [3, 3], 4, "num_rollouts"),
        (schedule_args(max_tokens_per_gpu=99), 4, [10, 10], 2, "dp_size"),
        (schedule_args(False, micro_batch_size=3), 2, [10] * 8, 8, "static path"),
        (schedule_args(max_tokens_per_gpu=10), 2, [10] * 3, 3, "multiple of 2"),
    ])  # fmt: skip
    def test_refusals(self, args: Any, dp: int, lengths: list[int], size: int, words: str) -> None:
        with pytest.raises(AssertionError, match=words):
            slime.build_dp_schedule(
                args, config(dp), lengths, global_batch_size=size,
                rollout_indices=list(range(len(lengths))),
            )  # fmt: skip


MEDIUM = [25, 35, 45, 55, 65, 75, 85, 95, 15, 25, 35, 45, 55, 65, 75, 85, 95]


class TestNemoRl:
    @pytest.mark.parametrize("name", [*nemo_rl.ALGORITHMS, "first_fit_decreasing"])
    @pytest.mark.parametrize("lengths", [
        [10, 20, 30, 40, 50, 60, 70, 80, 90], MEDIUM, [50], [30] * 5, [100] * 3, [],
        [10, 50, 100, 20, 80, 30, 70, 40, 60, 90], [50, 150, 70, 30], [150, 101],
    ])  # fmt: skip
    def test_published_cases(self, name: str, lengths: list[int]) -> None:
        packer = nemo_rl.get_packer(SimpleNamespace(name=name), 100)
        bins = packer.pack(lengths)
        assert flat(bins) == list(range(len(lengths)))
        above = [i for i, length in enumerate(lengths) if length > 100]
        assert packer.oversized == above
        assert [
            one for one, total in zip(bins, tokens(bins, lengths), strict=True) if total > 100
        ] == [[i] for i in above]
        for order in (range(len(lengths)), falling(lengths)):
            assert len(bins) <= len(first_fit(lengths, 100, order))
        assert packer.pack(lengths) == bins

    @pytest.mark.parametrize(("least", "multiple", "count"), [
        (None, 4, 12), (12, None, 12), (11, 3, 12), (17, None, 17), (0, 1, 10),
    ])  # fmt: skip
    def test_number_of_bins(self, least: int | None, multiple: int | None, count: int) -> None:
        packer = nemo_rl.get_packer("concatenative", 100, False, least, multiple)
        bins = packer.pack(MEDIUM)
        assert (len(bins), flat(bins)) == (count, list(range(len(MEDIUM))))
        few = nemo_rl.get_packer("concatenative", 100, min_bin_count=4, bin_count_multiple=4)
        bins = few.pack([150, 20, 20, 20, 20])
        assert len(bins) == 4
        assert [0] in bins

    def test_refusals(self) -> None:
        for options in (
            {"min_bin_count": -1},
            {"bin_count_multiple": 0},
            {"collect_metrics": True},
        ):
            with pytest.raises(ValueError, match=next(iter(options))):
                nemo_rl.get_packer("concatenative", 100, **options)
        for name in (object(), "best_fit", None):
            with pytest.raises(ValueError, match="CONCATENATIVE"):
                nemo_rl.get_packer(name, 100)
        for options, bins in (({"min_bin_count": 3}, 3), ({"bin_count_multiple": 4}, 4)):
            with pytest.raises(
                ValueError, match=f"Cannot create {bins} bins with only 2 sequences"
            ):
                nemo_rl.get_packer("concatenative", 100, **options).pack([50, 50])


class Dataset:
    """What a dataset of `datasets` has that packing uses, over one table."""

    def __init__(self, table: pa.Table, columns: list[str] | None = None) -> None:
        self.table = table
        names = table.column_names if columns is None else columns
        self.format = {"type": None, "columns": names, "format_kwargs": {}}

    def with_format(self, type: str | None, columns: list[str] | None = None) -> Dataset:
        assert type in (None, "arrow")
        return Dataset(self.table, columns)

    def map(self, function: Any, batched: bool, **_: Any) -> Dataset:
        assert batched
        return Dataset(function(self.table))


ROWS = {
    "input_ids": [[1, 2, 3], [4, 5, 6, 7], [8]],
    "attention_mask": [[0, 1, 1], [0, 0, 1, 1], [1]],
}


def table(rows: dict[str, list[Any]], kind: Any = pa.list_) -> pa.Table:
    return pa.table({name: pa.array(column, kind(pa.int64())) for name, column in rows.items()})


class TestTrl:
    @pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
    @pytest.mark.parametrize(("strategy", "ids", "masks", "sizes"), [
        ("bfd", [[1, 2, 3, 8], [4, 5, 6, 7]], [[0, 1, 1, 1], [0, 0, 1, 1]], [[3, 1], [4]]),
        ("wrapped", [[1, 2, 3, 4], [5, 6, 7, 8]], [[0, 1, 1, 0], [0, 1, 1, 1]], None),
    ])  # fmt: skip
    def test_packs(self, kind: Any, strategy: str, ids: Any, masks: Any, sizes: Any) -> None:
        made = trl.pack_dataset(Dataset(table(ROWS, kind)), 4, strategy)
        found = made.table.to_pydict()
        assert (found["input_ids"], found["attention_mask"]) == (ids, masks)
        assert found.get("seq_lengths") == sizes
        assert made.format["columns"] == made.table.column_names
        assert made.table.schema.field("input_ids").type == kind(pa.int64())

    def test_what_is_cut_off_is_said(self) -> None:
        rows = {"input_ids": [[1, 2, 3, 4, 5], [6, 7], [8, 9, 10], [11], []]}
        with pytest.warns(UserWarning, match=r"1 of 5 sequences .* 1 tokens are cut off"):
            found = trl.pack_table(table(rows), 4).to_pydict()
        assert sorted(found["input_ids"]) == [[1, 2, 3, 4], [6, 7, 11], [8, 9, 10]]
        found = trl.pack_table(table(rows), 4, "bfd_split").to_pydict()
        assert sorted(chain(*found["input_ids"])) == list(range(1, 12))
        assert [sum(sizes) for sizes in found["seq_lengths"]] == [
            len(i) for i in found["input_ids"]
        ]
        assert len(found["input_ids"]) == 3

    def test_slices_and_chunks(self) -> None:
        whole_table = table({"a": [[i] * (i % 5 + 1) for i in range(40)]})
        parts = pa.concat_tables([whole_table.slice(3, 11), whole_table.slice(20, 9)])
        found = trl.pack_table(parts, 6).to_pydict()["a"]
        expected = [i for n in (*range(3, 14), *range(20, 29)) for i in [n] * (n % 5 + 1)]
        assert sorted(chain(*found)) == sorted(expected)
        wrapped = trl.pack_table(parts, 6, "wrapped").to_pydict()["a"]
        assert [*chain(*wrapped)] == expected
        assert trl.pack_table(whole_table.slice(0, 0), 6).num_rows == 0

    def test_refusals(self) -> None:
        rows = Dataset(table({"a": [[1, 2]], "b": [[1]]}))
        with pytest.raises(ValueError, match="column b has rows of other lengths"):
            trl.pack_dataset(rows, 4)
        with pytest.raises(TypeError, match="column a is int64"):
            trl.pack_dataset(Dataset(pa.table({"a": [1, 2]})), 4)
        with pytest.raises(ValueError, match="'best': it must be one of bfd"):
            trl.pack_dataset(rows, 4, "best")
        with pytest.raises(ValueError, match="no columns"):
            trl.pack_table(pa.table({}), 4)


class TestBytes:
    """With a planner no micro-batch requires more than is available."""

    def test_every_part_fits(self, planner: Planner) -> None:
        lengths = [int(n) for n in np.random.default_rng(3).integers(200, 4000, 40)]
        made = deal(lengths, planner=planner)
        for part in made.parts:
            sequences = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
            assert not planner.plan([sequences[i] for i in part]).split
        assert len(made.parts) < len(lengths)
        fewer = Planner(planner.model, planner.topology, planner.training, "6 GiB")
        assert len(deal(lengths, planner=fewer).parts) < len(made.parts)

    def test_drop_ins_take_a_planner(self, planner: Planner) -> None:
        lengths = [1000, 2000, 3000, 4000, 2500, 1500]
        parts = {tuple(part.tolist()) for part in deal(lengths, planner=planner).parts}
        made = nemo_rl.get_packer("concatenative", 10**6, planner=planner).pack(lengths)
        assert {tuple(one) for one in made} == parts
        _, rows = verl.rearrange_micro_batches(batch(lengths), None, planner=planner)
        assert len(rows) == len(parts)
        args = schedule_args()
        made = slime.build_dp_schedule(
            args, config(1), lengths, global_batch_size=6, planner=planner
        )
        assert made[2] == [len(parts)]

    def test_rows_of_trl_fit(self, planner: Planner) -> None:
        lengths = [*range(800, 4_000, 100)]
        table = pa.table({"input_ids": [[7] * n for n in lengths]})
        packed = trl.pack_table(table, 10**6, planner=planner)
        rows = [tuple(row) for row in packed["seq_lengths"].to_pylist()]
        assert sorted(n for row in rows for n in row) == lengths
        assert 1 < len(rows) == len(deal(lengths, planner=planner).parts)
        for row in rows:
            assert not planner.plan(Requests([[7] * n for n in row], sharing=False)).split
        with pytest.raises(ValueError, match="wrapped"):
            trl.pack_table(table, 1_000, "wrapped", planner=planner)
        with pytest.raises(ValueError, match="seq_length is -1"):
            trl.pack_table(table, -1, "wrapped")

    def test_work_in_seconds_is_balanced(self) -> None:
        lengths = np.array([100, 100, 400, 300, 200, 50, 30, 900])
        parts = deal(lengths, whole(lengths * 1e-4), parts=2).parts
        assert [*map(sorted, parts)] == [*map(sorted, deal(lengths, parts=2).parts)]
        assert whole([0.25, 1.5, 0]) == [-(-(1 << 40) // 6), 1 << 40, 0]
        assert whole([3.0, 5]) == [3, 5]

    def test_a_sequence_that_never_fits_is_refused(self, planner: Planner) -> None:
        with pytest.raises(WaveRefused, match="GiB"):
            deal([100, 4_000_000], planner=planner)
        with pytest.raises(ValueError, match="groups only") as caught:
            verl.rearrange_micro_batches(batch([100, 4_000_000]), None, planner=planner)
        assert isinstance(caught.value.__cause__, WaveRefused)


def test_work_of_any_size_adds_up() -> None:
    made = whole([2**63, 2**63, 1.5, 3])
    assert sum(made) < 2**63
    assert made[0] == made[1] > made[3]
    assert whole([2.0, 2, np.int64(7)]) == [2, 2, 7]
