"""Shared fixtures and the hypothesis profiles: "ci" by default, "deep" with WAVEPLAN_DEEP=1."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
ROOT = HERE.parent
collect_ignore = ["art", "fuzz"]  # a lane of its own: tests/art/run

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep",
    deadline=None,
    max_examples=3000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("deep" if os.environ.get("WAVEPLAN_DEEP") else "ci")


def _visible(config: pytest.Config) -> set[str]:
    """The entries of the folder that pytest runs in."""
    names = (path.name for path in config.invocation_params.dir.iterdir())
    return {name for name in names if not name.startswith((".", "__pycache__"))}


FOUND = pytest.StashKey[set[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FOUND] = _visible(config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tests write into folders of their own: a new file in this one ends the run in an error."""
    if left := sorted(_visible(session.config) - session.config.stash[FOUND]):
        pytest.exit(f"the tests left files behind: {', '.join(left)}", returncode=1)


def golden_folder() -> Path:
    """Where the golden vectors lie: WAVEPLAN_GOLDEN, or tests/golden."""
    return Path(os.environ.get("WAVEPLAN_GOLDEN") or HERE / "golden")


def data_folder() -> Path:
    """Where the corpora lie: WAVEPLAN_DATA, or tests/data."""
    return Path(os.environ.get("WAVEPLAN_DATA") or HERE / "data")


def golden_cases(pattern: str) -> list[dict]:
    """All cases of the golden files that match `pattern`; fails if there is none."""
    cases = []
    for path in sorted(golden_folder().glob(pattern)):
        cases += json.loads(path.read_text())["cases"]
    assert cases, f"no golden case matches {pattern} in {golden_folder()}"
    return cases


def corpus_sequences(name: str, rows: list[int] | None = None) -> list[np.ndarray]:
    """Sequences of a corpus file (all, or those listed, in that order) as int64 arrays."""
    with np.load(data_folder() / name) as data:
        tokens, offsets = data["tokens"].astype(np.int64), data["offsets"]
    picked = range(len(offsets) - 1) if rows is None else rows
    return [tokens[offsets[i] : offsets[i + 1]] for i in picked]


@pytest.fixture(scope="session")
def corpora() -> dict[str, list[np.ndarray]]:
    """The four corpora by short name."""
    names = ("tau_retail", "tau_turns", "coding", "math_grpo")
    return {name: corpus_sequences(f"{name}_open.npz") for name in names}


@pytest.fixture
def sequences(tmp_path: Path) -> str:
    """Six sequences of which four share a prefix."""
    rng = np.random.default_rng(7)
    prefix = rng.integers(0, 1000, 300)
    made = [np.concatenate([prefix, rng.integers(0, 1000, 50 + i)]) for i in range(4)]
    made += [rng.integers(0, 1000, 400), rng.integers(0, 1000, 80)]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in made])])
    path = tmp_path / "sequences.npz"
    np.savez(path, tokens=np.concatenate(made), offsets=offsets)
    return str(path)
