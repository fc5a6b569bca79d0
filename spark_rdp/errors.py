"""The kinds of failure a user can meet, and the one place that words them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import ClassVar


class SparkRdpError(Exception):
    """A failure told in one sentence. ``exit_code`` is what the command line ends with."""

    exit_code: ClassVar[int] = 4


class InvalidInput(SparkRdpError, ValueError):
    """Configuration or input that cannot be used; nothing was started and nothing was charged."""

    exit_code = 2


class BudgetRefused(SparkRdpError):
    """The ledger has not enough budget left for the charge."""

    exit_code = 3


class JobFailed(SparkRdpError):
    """A job stopped half-way; what it was about to publish was not published. The same call can be made again."""

    exit_code = 4


def invalid(name: str, constraint: str, value: object, remedy: str) -> InvalidInput:
    """Word a refused parameter: ``{name} must be {constraint}; got {value}. {remedy}``.

    Args:
        name: The parameter as the user wrote it, for example ``measures[0].lower``.
        constraint: What would have been accepted, for example ``a finite number``.
        value: The configured value. Never pass a value that comes from data.
        remedy: One sentence that says what to write instead.
    """
    return InvalidInput(f"{name} must be {constraint}; got {value!r}. {remedy}")


def missing(name: str, remedy: str) -> InvalidInput:
    """Word a parameter that was left out: ``{name} must be given. {remedy}``."""
    return InvalidInput(f"{name} must be given. {remedy}")


def unknown_key(name: str, known: Sequence[str]) -> InvalidInput:
    """Word a key nobody knows, with the nearest known one.

    Args:
        name: The key as the user wrote it.
        known: The keys that would have been accepted.
    """
    near = get_close_matches(name.rpartition(".")[2], known, n=1)
    cure = f"did you mean {near[0]!r}?" if near else f"the known keys are {', '.join(known)}."
    return InvalidInput(f"{name} is not a known key; {cure}")
