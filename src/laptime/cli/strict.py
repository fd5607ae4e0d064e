"""The class of all commands: what was typed stands in a refusal, an empty value is refused, an interruption is told."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperCommand

from laptime.errors import UsageError, shorten


class Command(TyperCommand):
    """A command whose refusals name the value, as an empty one is: `--resume "$RUN"` of a variable that is not set."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the words behind the command; raises UsageError for an option with nothing behind it."""
        words = list(args)  # the parser takes them off its list
        empty = next((name for name, value in _given(words) if not value.strip()), None)
        if empty:
            raise UsageError(f"{empty} was given nothing ('') as its value: give one, or leave {empty} out.")
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            typed = _typed(words, getattr(error.param, "opts", ()))
            if typed and repr(typed) not in error.message:  # some versions of typer say it themselves
                error.message = f"{error.message.rstrip('.')} (given {typed!r})."
            raise

    def invoke(self, ctx: Any) -> Any:
        """Runs it; where it is interrupted and has no words of its own for that, says so, with what there is to add."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            with contextlib.suppress(OSError):  # the terminal may be gone
                typer.echo(" ".join(["laptime: interrupted.", *getattr(stop, "__notes__", [])]), err=True)
            raise typer.Exit(128 + signal.SIGINT) from stop


def _given(words: Sequence[str]) -> list[tuple[str, str]]:
    """The options among the words, each with what stands behind it; a flag has the next word, which is never empty."""
    found = []
    for word, after in pairwise([*words, "-"]):
        name, joined, value = word.partition("=")
        if name.startswith("--"):
            found.append((name, value if joined else after))
    return found


def _typed(words: Sequence[str], names: Sequence[str]) -> str:
    """What was typed behind an option, the last time; empty where it was not."""
    return shorten(next((value for name, value in reversed(_given(words)) if name in names), ""), 60)
