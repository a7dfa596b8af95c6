"""A step in composed waves has the loss and gradients of the step in pool order; needs torch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "composed_step.py"


@pytest.mark.processes
def test_a_composed_step_is_the_step() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    kept, composed = map(int, re.findall(r"(\d+) (?:waves|composed)", done.stdout.splitlines()[0]))
    assert 1 < composed < kept
    apart = re.search(r"gradients differ by (\S+) at most", done.stdout)
    assert apart is not None
    assert float(apart[1]) < 1e-12
