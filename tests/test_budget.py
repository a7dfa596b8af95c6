"""Bytes as people write them, and what a budget leaves for waves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waveplan import (
    Budget,
    InputError,
    Planner,
    Topology,
    Training,
    format_bytes,
    models,
    parse_bytes,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("139 GiB", 139 * 2**30),
        ("70GiB", 70 * 2**30),
        ("80GB", 80 * 10**9),
        ("1.5 tib", 3 * 2**39),
        (" 12_000_000 ", 12_000_000),
        ("1 B", 1),
        (7, 7),
        (7.0, 7),
        (np.int64(7), 7),
        ("0.1 GB", 10**8),
    ],
)
def test_parse(text: object, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        "0 GiB",
        "-3 GB",
        float("nan"),
        float("inf"),
        1.5,
        "12 bananas",
        "",
        "GiB",
        "1e9",
        "nan",
        True,
        None,
        [1],
        2**63,
        "9000 PiB",
        "٣ GB",
    ],
)
def test_refused_in_one_line(value: object) -> None:
    with pytest.raises(InputError) as caught:
        parse_bytes(value, "budget")
    assert "budget" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError):
        Budget(available=value)  # type: ignore[arg-type]


def test_format() -> None:
    assert format_bytes(139 * 2**30) == "139.00 GiB"
    assert format_bytes(44_674_818_048, decimal=True) == "44.67 GB"
    assert format_bytes(12) == "12 B"
    assert format_bytes(0) == "0 B"
    assert format_bytes(2**20 - 1) == "1.00 MiB"
    assert format_bytes(-(2**20)) == "-1.00 MiB"


@given(st.integers(1, 2**62), st.booleans())
def test_format_reads_back(value: int, decimal: bool) -> None:
    text = format_bytes(value, decimal=decimal)
    assert parse_bytes(text.replace(",", "")) == pytest.approx(value, rel=0.006)


def test_available_is_taken_whole() -> None:
    assert Budget(available="70GiB").resolve() == 70 * 2**30
    assert Budget(available="70GiB").resolve(resident=5) == 70 * 2**30


def test_device_less_reserve_and_resident() -> None:
    device = 141 * 2**30
    assert (
        Budget("141 GiB", resident="30 GiB").resolve() == device - int(device * 0.03) - 30 * 2**30
    )
    assert Budget(device=device, reserve=0).resolve(resident=10) == device - 10
    assert Budget(device=device, resident=0, reserve=0.0).resolve() == device
    assert Budget(device).needs_resident
    assert not Budget(device, resident=0).needs_resident
    assert not Budget(available=device).needs_resident
    with pytest.raises(InputError, match="resident bytes are needed"):
        Budget(device).resolve()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "either device"),
        ({"device": 1, "available": 1}, "either device"),
        ({"device": "80GB", "resident": "90GB"}, "nothing is left"),
        ({"available": "80GB", "resident": 1}, "resident is only"),
        ({"device": "80GB", "reserve": 1.0}, "reserve is 1.0"),
        ({"device": "80GB", "reserve": float("nan")}, "reserve is nan"),
        ({"device": "80GB", "reserve": "3%"}, "reserve must be"),
    ],
)
def test_budget_refusals(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Budget(**values)


def test_a_step_that_does_not_fit_is_refused() -> None:
    """PyTorch's step makes a list of temporaries; the job without it has something left."""
    model, budget = models.get("qwen3-8b"), Budget(device="72GiB")
    plain = Training(
        lora_rank=0, grad_dtype="bf16", moment_dtype="bf16", master_weights=False, head="full"
    )
    assert Planner(model, Topology(), plain, budget).available > 0
    with pytest.raises(InputError, match=r"step does not fit: device 72\.00 GiB, at the step 78\."):
        Planner(model, Topology(), replace(plain, foreach_step=True), budget)
