"""Sequences: what is taken without a copy, what is converted, what is refused, and files."""

from __future__ import annotations

import copy
import importlib.util
import io
import json
import pickle
import sys

import numpy as np
import pytest
from conftest import data_folder
from hypothesis import given
from hypothesis import strategies as st

import waveplan
from waveplan import InputError, Ragged, Sequences

HAS_ARROW = importlib.util.find_spec("pyarrow") is not None


def lists_of(sequences):
    return [sequences[i].tolist() for i in range(len(sequences))]


# --- arrays ---


def test_contiguous_int64_is_not_copied():
    tokens = np.arange(6)
    sequences = Sequences(tokens, [0, 2, 2, 6])
    assert np.shares_memory(sequences.tokens, tokens)
    assert lists_of(sequences) == [[0, 1], [], [2, 3, 4, 5]]
    assert sequences.lengths.tolist() == [2, 0, 4]
    assert repr(sequences) == "Sequences(3 sequences, 6 tokens)"
    assert sequences[-1].tolist() == [2, 3, 4, 5]
    with pytest.raises(IndexError):
        sequences[3]


def test_sequences_are_frozen():
    tokens, offsets = np.arange(3), np.array([0, 3])
    sequences = Sequences(tokens, offsets, {"group": [4]})
    with pytest.raises(AttributeError):
        sequences.tokens = tokens
    for array in (sequences.tokens, sequences.offsets, sequences[0], sequences.columns["group"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(TypeError):
        sequences.columns["x"] = tokens
    offsets[1] = 99  # the caller's own array: what was checked stays
    assert sequences.offsets.tolist() == [0, 3]
    tokens[0] = 7  # still the caller's to write
    assert sequences[0].tolist() == [7, 1, 2]


@pytest.mark.parametrize(
    "dtype", ["i1", "i2", "i4", "<i4", ">i4", ">i8", "u1", "u2", "u4", ">u4", "u8", ">u8"]
)
def test_other_integers_are_converted_once(dtype):
    tokens = np.array([1, 2, 3, 4, 100], dtype)
    sequences = Sequences(tokens, np.array([0, 5], "u4"))
    assert sequences.tokens.dtype == np.int64
    assert sequences.tokens.dtype.isnative
    assert lists_of(sequences) == [[1, 2, 3, 4, 100]]
    assert waveplan.tree(sequences).packed() == 5


def test_odd_memory_layouts():
    wanted = [[0, 2], [4, 6, 8]]
    strided = np.arange(10)[::2]
    backwards = np.arange(8, -1, -2)[::-1]
    read_only = np.arange(0, 10, 2)
    read_only.flags.writeable = False
    misaligned = np.frombuffer(b"x" + np.arange(0, 10, 2).tobytes(), np.uint8)[1:].view(np.int64)
    assert not misaligned.flags.aligned
    column = np.arange(10).reshape(5, 2)[:, 0]
    for tokens in (strided, backwards, read_only, misaligned, column, memoryview(read_only)):
        sequences = Sequences(tokens, [0, 2, 5])
        assert lists_of(sequences) == wanted
        assert sequences.tokens.flags.aligned
        assert sequences.tokens.flags.c_contiguous
        assert waveplan.tree(sequences).packed() == 5


def test_a_broadcast_array_is_materialised():
    sequences = Sequences(np.broadcast_to(np.int64(3), 4), [0, 4])
    assert waveplan.pack(sequences).packed_tokens == 4


@pytest.mark.parametrize(
    ("tokens", "offsets", "message"),
    [
        (np.array([1.0, 2.0]), [0, 2], "tokens has dtype float64"),
        ([1, 2.5], [0, 2], r"tokens\[1\] is 2.5"),
        ([1, None], [0, 2], r"tokens\[1\] is None"),
        ([1, "2"], [0, 2], r"tokens\[1\] is '2'"),
        (np.array([True, False]), [0, 2], "tokens has dtype bool"),
        ([True, False], [0, 2], r"tokens\[0\] is True"),
        (np.array([1, "a"], object), [0, 2], "tokens has dtype object"),
        (np.array(["2020-01-01"], "M8[D]"), [0, 1], "tokens has dtype datetime64"),
        (np.array([1, 2**63], np.uint64), [0, 2], r"tokens\[1\] is 9223372036854775808"),
        ([1, 2**64], [0, 2], r"tokens\[1\] is 18446744073709551616"),
        ([0, -(2**63) - 1], [0, 2], r"tokens\[1\] is -9223372036854775809"),
        (np.zeros((2, 2), int), [0, 4], r"tokens has shape \(2, 2\)"),
        ([[1], [2, 3]], [0, 2], "tokens is not an array of integers"),
        (7, [0, 1], r"tokens has shape \(\)"),
        (np.ma.masked_array([1, 2], [True, False]), [0, 2], "tokens is a masked array"),
        ([1, 2], [], "offsets is empty"),
        ([1, 2], [1, 2], r"offsets\[0\] is 1"),
        ([1, 2], [-1, 2], r"offsets\[0\] is -1"),
        ([1, 2], [0, 2, 1, 2], r"offsets\[2\] is 1 after 2"),
        ([1, 2], [0, 3], "offsets end at 3, but there are 2 tokens"),
        ([1, 2], [0, 1], "offsets end at 1, but there are 2 tokens"),
        ([1, 2], [0, 2**63 - 1], "offsets end at 9223372036854775807"),
        ([1, 2], [0, 2**63 - 1, -(2**63), 2], r"offsets\[2\] is -9223372036854775808"),
        ([1, 2], [0.0, 2.0], r"offsets\[0\] is 0.0"),
        ([1, 2], [[0, 2]], r"offsets has shape \(1, 2\)"),
    ],
)
def test_refused_arrays(tokens, offsets, message):
    with pytest.raises(InputError, match=message) as refused:
        Sequences(tokens, offsets)
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, ValueError)


def test_columns_have_one_entry_a_sequence():
    sequences = Sequences([1, 2, 3], [0, 1, 3], {"group": np.array([5, 6], np.int16)})
    assert sequences.columns["group"].dtype == np.int64
    with pytest.raises(InputError, match="group has 1 entries for 2 sequences"):
        Sequences([1, 2, 3], [0, 1, 3], {"group": [5]})


def test_take_keeps_order_repeats_and_columns():
    sequences = Sequences([1, 2, 3, 4], [0, 1, 1, 4], {"group": [7, 8, 9]})
    taken = sequences.take([2, 0, 2, -2])
    assert lists_of(taken) == [[2, 3, 4], [1], [2, 3, 4], []]
    assert taken.columns["group"].tolist() == [9, 7, 9, 8]
    assert len(sequences.take([])) == 0
    for wrong in ([3], [0, -4], [2**62]):
        with pytest.raises(InputError, match="there are 3 sequences"):
            sequences.take(wrong)


def test_copies_and_pickles():
    sequences = Sequences([1, 2, 3], [0, 1, 3], {"group": [4, 5]})
    for twin in (
        pickle.loads(pickle.dumps(sequences)),
        copy.deepcopy(sequences),
        copy.copy(sequences),
    ):
        assert lists_of(twin) == lists_of(sequences)
        assert twin.columns["group"].tolist() == [4, 5]


def test_ragged():
    ragged = Ragged(np.arange(3), np.array([0, 2, 2, 3]))
    assert [list(part) for part in ragged] == [[0, 1], [], [2]]
    assert ragged.lengths.tolist() == [2, 0, 1]
    assert repr(ragged) == "Ragged(3 lists, 3 values)"


# --- from_any ---


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6), max_size=6))
def test_from_lists(sequences):
    assert lists_of(Sequences.from_any(sequences)) == sequences
    assert lists_of(Sequences.from_any(tuple(map(tuple, sequences)))) == sequences
    assert (
        lists_of(Sequences.from_any(np.array(sequence, np.int64) for sequence in sequences))
        == sequences
    )


def test_from_other_holders():
    wanted = [[1, 2], [3, 4]]
    as_objects = np.empty(2, object)
    as_objects[:] = [np.array([1, 2], np.int32), [3, 4]]
    for sequences in (
        np.array(wanted, np.int16),
        np.array([[1, 9, 2, 9], [3, 9, 4, 9]])[:, ::2],
        as_objects,
        [range(1, 3), (n for n in (3, 4))],
        [memoryview(np.array([1, 2])), np.array([3, 4], ">u8")],
        [[np.int32(1), 2], np.array([3, 4])],
    ):
        assert lists_of(Sequences.from_any(sequences)) == wanted
    given_sequences = Sequences([1], [0, 1])
    assert Sequences.from_any(given_sequences) is given_sequences
    assert lists_of(Sequences.from_any(np.zeros((3, 0), int))) == [[], [], []]


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        (5, "sequences is a int"),
        (None, "sequences is a NoneType"),
        ("abc", "sequences is a str"),
        ({"a": [1]}, "no token ids: the columns are a"),
        ([[1], 5], "sequence 1 is a int"),
        ([[1], "23"], "sequence 1 is a str"),
        ([[1], None], "sequence 1 is a NoneType"),
        ([[1], [[2]]], r"sequence 1 has shape \(1, 1\)"),
        ([[1], [2, True]], r"sequence 1\[1\] is True"),
        ([[1], [2, 0.5]], r"sequence 1\[1\] is 0.5"),
        ([[1], [2, float("nan")]], r"sequence 1\[1\] is nan"),
        ([[1], [2**63]], r"sequence 1\[0\] is 9223372036854775808"),
        ([np.zeros(2)], "sequence 0 has dtype float64"),
        (np.zeros(3, int), r"sequences has shape \(3,\)"),
        (np.zeros((2, 2)), "sequences has dtype float64"),
        ([[1, 2], np.ma.masked_array([1, 2], [True, False])], "sequence 1 is a masked array"),
        ([[1, [2, 3]]], "sequence 0 is not an array of integers"),
    ],
)
def test_refused_sequences(sequences, message):
    with pytest.raises(InputError, match=message) as refused:
        Sequences.from_any(sequences)
    assert "\n" not in str(refused.value)


class Tensor:
    """Enough of a torch tensor: what is read of one."""

    def __init__(self, values, refusal=None):
        self.values, self.refusal = values, refusal

    def __array__(self, dtype=None, copy=None):
        if self.refusal:
            raise TypeError(self.refusal)
        return np.array(self.values, dtype)

    def __iter__(self):
        raise AssertionError("a tensor is read as a whole")

    def __len__(self):
        return len(self.values)


def test_torch_tensors_without_torch():
    assert lists_of(Sequences.from_any([Tensor([1, 2]), Tensor([3])])) == [[1, 2], [3]]
    assert lists_of(Sequences.from_any(Tensor([[1, 2], [3, 4]]))) == [[1, 2], [3, 4]]
    for sequences, message in (
        ([Tensor([1.5])], r"sequence 0\[0\] is 1.5"),
        ([Tensor([1], "can't convert cuda:0 tensor")], "sequence 0 is not .* cuda:0"),
        (Tensor([[1]], "can't convert cuda:0 tensor"), "sequences cannot be read: .* cuda:0"),
    ):
        with pytest.raises(InputError, match=message):
            Sequences.from_any(sequences)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    given = [torch.tensor([1, 2]), torch.tensor([3], dtype=torch.int64)]
    assert lists_of(Sequences.from_any(given)) == [[1, 2], [3]]
    assert lists_of(Sequences.from_any(torch.nested.nested_tensor(given))) == [[1, 2], [3]]
    columns = {"input_ids": torch.tensor([[0, 4]]), "attention_mask": torch.tensor([[0, 1]])}
    assert lists_of(Sequences.from_any(columns)) == [[4]]
    with pytest.raises(InputError, match="sequence 0"):
        Sequences.from_any([torch.tensor([1.5])])


# --- .jsonl ---


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_json_lines(tmp_path):
    path = write(
        tmp_path / "sequences.jsonl",
        '{"input_ids": [1, 2], "group": 3, "text": "x"}\n\n{"tokens": [], "group": 0}\r\n'
        '{"prompt_ids": null, "tokens": [9], "group": 4}',
    )
    sequences = Sequences.load(path)
    assert lists_of(sequences) == [[1, 2], [], [9]]
    assert sequences.columns["group"].tolist() == [3, 0, 4]


def test_json_lines_of_prompts_and_completions(tmp_path):
    lines = [
        {"prompt_ids": [1, 2], "completion_ids": [3]},
        {"prompt_ids": [], "completion_ids": [4]},
    ]
    path = write(tmp_path / "sequences.jsonl", "\n".join(map(json.dumps, lines)))
    sequences = Sequences.load(str(path))
    assert lists_of(sequences) == [[1, 2, 3], [4]]
    assert sequences.columns["first_target"].tolist() == [2, 0]


def test_json_lines_from_stdin(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(b'{"tokens": [1]}\n{"tokens": "x"}\n'))
    monkeypatch.setattr(sys, "stdin", stream)
    with pytest.raises(InputError, match="stdin: line 2: tokens is a str"):
        Sequences.load("-")


# --- .npz ---


def test_npz_with_columns():
    sequences = Sequences.load(data_folder() / "math_grpo_open.npz")
    assert len(sequences) == 1_400
    assert len(sequences.tokens) == 519_496
    assert set(sequences.columns) == {"first_target", "group"}
    assert (sequences.columns["first_target"] < sequences.lengths).all()


def test_npz_round_trip(tmp_path):
    path = tmp_path / "sequences.npz"
    np.savez(path, tokens=np.array([1, 2, 3], ">u2"), offsets=[0, 1, 3], note=["x"])
    assert lists_of(Sequences.load(path)) == [[1], [2, 3]]
    np.save(tmp_path / "sequences.npy", np.array([[1, 2], [3, 4]], np.uint16))
    assert lists_of(Sequences.load(tmp_path / "sequences.npy")) == [[1, 2], [3, 4]]


@pytest.mark.skipif(not HAS_ARROW, reason="pyarrow is not installed")
class TestArrow:
    WANTED = ((1, 2), (), (3,))

    def lists(self, kind="list"):
        import pyarrow as pa

        kinds = {
            "list": pa.list_(pa.int64()),
            "small": pa.list_(pa.int32()),
            "large": pa.large_list(pa.uint16()),
        }
        return pa.array([list(sequence) for sequence in self.WANTED], kinds[kind])

    @pytest.mark.parametrize("kind", ["list", "small", "large"])
    def test_list_arrays(self, kind):
        import pyarrow as pa

        array = self.lists(kind)
        wanted = [list(sequence) for sequence in self.WANTED]
        assert lists_of(Sequences.from_any(array)) == wanted
        assert lists_of(Sequences.from_any(array[1:])) == wanted[1:]
        assert lists_of(Sequences.from_any(pa.chunked_array([array, array[:1]]))) == [
            *wanted,
            [1, 2],
        ]
        assert len(Sequences.from_any(pa.chunked_array([], array.type))) == 0
        assert lists_of(Sequences.from_any(list(array))) == wanted
        fixed = pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))
        assert lists_of(Sequences.from_any(fixed[1:])) == [[3, 4]]

    def test_refused_arrow(self):
        import pyarrow as pa

        for array, message in (
            (pa.array([[1], None]), "sequence 1 is null"),
            (pa.array([[1], [2, None]]), "sequence 1 holds a null at position 1"),
            (pa.array([1, 2]), "Arrow type int64"),
            (pa.array([[1.5]]), "Arrow values of type double"),
            (pa.array([[True]]), "Arrow values of type bool"),
            (pa.array([[2**63]], pa.list_(pa.uint64())), "9223372036854775808"),
        ):
            with pytest.raises(InputError, match=message):
                Sequences.from_any(array)

    def test_files(self, tmp_path):
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({"input_ids": self.lists(), "group": [1, 2, 3], "text": ["a", "b", "c"]})
        pq.write_table(table, tmp_path / "sequences.parquet", row_group_size=2)
        with pa.ipc.new_file(str(tmp_path / "sequences.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
        with pa.ipc.new_stream(str(tmp_path / "stream.arrow"), table.schema) as writer:
            writer.write_table(table)
        for name in ("sequences.parquet", "sequences.arrow", "stream.arrow"):
            sequences = Sequences.load(tmp_path / name)
            assert lists_of(sequences) == [list(sequence) for sequence in self.WANTED], name
            assert sequences.columns["group"].tolist() == [1, 2, 3]

    def test_prompts_and_completions(self, tmp_path):
        import pyarrow as pa
        import pyarrow.parquet as pq

        made = {"prompt_ids": [[1, 2], []], "completion_ids": [[3], [4]]}
        pq.write_table(pa.table(made), tmp_path / "sequences.parquet")
        sequences = Sequences.load(tmp_path / "sequences.parquet")
        assert lists_of(sequences) == [[1, 2, 3], [4]]
        assert sequences.columns["first_target"].tolist() == [2, 0]
