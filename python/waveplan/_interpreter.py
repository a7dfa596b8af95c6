"""Refuses sub-interpreters before anything that cannot live in one is loaded."""

from __future__ import annotations

from importlib import import_module

__all__ = ["in_main"]


def in_main() -> bool:
    """Whether this is the process's main interpreter."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # CPython 3.13 on, and before
        try:
            module = import_module(name)
        except ImportError:
            continue
        return bool(_number(module.get_current()) == _number(module.get_main()))
    return True


def _number(interpreter: object) -> object:
    """CPython 3.13 gives a number and where it came from."""
    return interpreter[0] if isinstance(interpreter, tuple) else interpreter


if not in_main():
    raise ImportError(
        "waveplan runs in the main interpreter only: neither its core nor numpy supports "
        "sub-interpreters; use threads or processes"
    )
