"""Standard streams that a command can rely on, whatever the shell made of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any

__all__ = ["discard_stdout", "streams"]


class _Quiet:
    """A stream whose reader may leave: later text is discarded, the work goes on."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Like the stream's own."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Like the stream's own."""
        with suppress(OSError):
            self._stream.flush()


@contextmanager
def streams() -> Iterator[None]:
    """Discard text for closed streams, ignore errors of stderr, and print any character."""
    with ExitStack() as stack:
        if sys.stdout is None or sys.stderr is None:
            _fill_descriptors()
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123
            if sys.stdout is None:
                stack.enter_context(redirect_stdout(nowhere))
            if sys.stderr is None:
                stack.enter_context(redirect_stderr(nowhere))
        for stream in (sys.stdout, sys.stderr):
            # File names may hold bytes that are no text, terminals may not know every letter.
            utf8 = getattr(stream, "encoding", None) == "utf-8"
            if hasattr(stream, "reconfigure") and not (utf8 and stream.errors != "strict"):
                stream.reconfigure(errors="backslashreplace")
        stack.enter_context(redirect_stderr(_Quiet(sys.stderr)))
        yield


def discard_stdout() -> None:
    """Discard what is buffered for stdout, now and when the interpreter ends."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _fill_descriptors() -> None:
    """Open the descriptors 0, 1 and 2, so that no file of ours takes their place."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
