"""Install when the other package's planner is imported, in every interpreter with `WAVEPLAN_ART`.

A `.pth` file of the wheel runs this file by its path where the variable is set, so nothing but the
standard library is imported here, and `waveplan` not before the planner is.
"""

from __future__ import annotations

import importlib.abc
import logging
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

VARIABLE = "WAVEPLAN_ART"
TRIGGER = "art.trainer_rank"
MODES: dict[str, dict[str, Any] | None] = {
    **{value: {} for value in ("1", "true", "on")},
    **dict.fromkeys(("", "0", "false", "off")),
    "shadow": {"shadow": True, "on_difference": "log"},
}
"""Values of the variable and options of `install`; None: nothing is installed."""
ARMED = "_waveplan_art"
"""Stands in `sys.modules` once this process has read the variable."""


class _Loader(importlib.abc.Loader):
    """Lets the planner's own loader execute it, then installs."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self.loader, self.finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self.loader.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        self.finder.done()
        install(self.finder.options)


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders find the planner; stays until it was imported."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != TRIGGER:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader, self)
                    return spec
        return None

    def done(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def install(options: dict[str, Any]) -> None:
    """Install and log one line of what was taken, or one of why not: an import never fails here."""
    log = logging.getLogger("waveplan.art")
    try:
        from waveplan.integrations import art

        report = art.install(**options)
    except Exception as error:
        log.warning("waveplan leaves ART alone: %s", " ".join(str(error).split()))
    else:
        log.log(logging.WARNING if report.refused else logging.INFO, "%s", report.summary)


def arm() -> None:
    """Read the variable, once a process."""
    if ARMED in sys.modules:
        return
    sys.modules[ARMED] = ModuleType(ARMED)
    value = os.environ.get(VARIABLE, "")
    mode = value.strip().lower()
    if mode not in MODES:
        known = "1, true or on; 0, false or off; shadow"
        print(f"waveplan: {VARIABLE}={value} is none of {known}: plain ART plans", file=sys.stderr)
    elif (options := MODES[mode]) is not None:
        if TRIGGER in sys.modules:
            install(options)
        else:
            sys.meta_path.insert(0, _Finder(options))


if __name__ == ARMED:
    arm()
