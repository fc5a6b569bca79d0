"""Times that a busy machine does not spoil: the fastest of equally many runs of each side, taken in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def fastest(
    sides: Mapping[str, Callable[[], object]],
    limits: Mapping[str, float],
    floor: str,
    *,
    clock: Callable[[], float] = time.perf_counter,
    rounds: int = 3,
    patience: float = 60.0,
) -> dict[str, float]:
    """The fastest run of each side.

    Other work on the machine only ever makes a run slower, so that the fastest run tells best what a side needs.

    Args:
        sides: What is run, by name; the first run of each warms up and does not count.
        limits: How many times as long as the floor a side may take; while one is exceeded, further rounds are run.
        floor: The side the others are compared with.
        clock: Seconds so far.
        rounds: Rounds at least.
        patience: Seconds after which no further round begins.
    """
    began = time.monotonic()
    times: dict[str, list[float]] = {name: [] for name in sides}

    def best() -> dict[str, float]:
        return {name: min(taken[1:]) for name, taken in times.items()}

    def exceeded() -> bool:
        return any(best()[name] > limit * best()[floor] for name, limit in limits.items())

    while len(times[floor]) <= rounds or (exceeded() and time.monotonic() - began < patience):
        for name, run in sides.items():
            start = clock()
            run()
            times[name].append(clock() - start)
    ratios = {name: f"{taken:.3f} s, {taken / best()[floor]:.2f} times" for name, taken in best().items()}
    print(ratios, f"fastest of {len(times[floor]) - 1}")
    return best()
