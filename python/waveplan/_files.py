"""The old path of `waveplan.files`."""

from __future__ import annotations

import json
import os
from typing import Any

from waveplan.files import *  # noqa: F403
from waveplan.files import MOST_BYTES, _read


def parse_json(data: bytes) -> Any:
    """Return the value of JSON text."""
    return json.loads(data)


def read_bytes(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Return the content of a file of at most ``most`` bytes."""
    return _read(path, most)


def check_name(path: str | os.PathLike[str]) -> None:
    """Accept any name."""
