"""Install as soon as the other package's planner is imported, and not before."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

TRIGGER = "art.trainer_rank"


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders import the trigger, then calls `install`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname != TRIGGER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute, options = spec.loader.exec_module, self.options

        def then_install(module: ModuleType) -> None:
            execute(module)
            from waveplan.integrations import art

            art.install(**options)

        spec.loader.exec_module = then_install  # type: ignore[method-assign]
        return spec


def install_on_import(**options: Any) -> None:
    """Install now if the planner is imported already, else when it is."""
    if TRIGGER in sys.modules:
        from waveplan.integrations import art

        art.install(**options)
    else:
        sys.meta_path.insert(0, _Finder(options))
