"""What the kinds of question that ``spark-rdp plan`` answers have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_rdp.errors import InvalidInput, invalid, missing

#: The plan for an epsilon.
Planner = Callable[[float], Any]


@dataclass(frozen=True)
class Model:
    """One kind of question.

    Flags are named as the parameters of `cli.plan.plan`: ``max_groups`` is ``--max-groups``.

    Args:
        title: What is asked, for messages.
        needs: Flags that ask for this model; if one is given, all must be. Where there are none, ``asks`` does.
        takes: Other flags this model uses, those of its metrics excepted.
        metrics: Metrics by name, the first one being taken when none is given; each with the flags it takes and an
            example, None for a flag that may be left out.
        planner: Reads the metric (None without metrics) and all flags.
        asks: Flags of which any one asks for this model too.
    """

    title: str
    needs: tuple[str, ...]
    takes: tuple[str, ...]
    metrics: Mapping[str, Mapping[str, str | None]]
    planner: Callable[[str | None, Mapping[str, Any]], Planner]
    asks: tuple[str, ...] = ()

    @property
    def asked_with(self) -> str:
        """The flags that ask for this model, for messages."""
        return " and ".join(map(flag, self.needs)) or " or ".join(map(flag, self.asks))

    def asked_by(self, given: Mapping[str, Any]) -> bool:
        """Whether a flag that was given asks for this model."""
        return any(given.get(name) is not None for name in (*self.needs, *self.asks))

    def plan(self, metric: str | None, given: Mapping[str, Any]) -> Planner:
        """The planner for the flags that were given.

        Args:
            metric: ``--metric``, None if it was left out.
            given: Every flag of a model by name; None where it was left out.

        Raises:
            InvalidInput: A flag is missing, or belongs to another model or metric.
        """
        for name in self.needs:
            if given[name] is None:
                raise missing(flag(name), f"It is needed for {self.title}.")
        chosen = metric if metric is not None else next(iter(self.metrics), None)
        if chosen is not None and chosen not in self.metrics:
            if not self.metrics:
                raise InvalidInput(f"--metric must be left out for {self.title}: there is only one.")
            choices = f"one of {', '.join(self.metrics)}, for {self.title}"
            raise invalid("--metric", choices, chosen, "See spark-rdp plan --help.")
        takes = self.metrics[chosen] if chosen is not None else {}
        of_metrics = {each for one in self.metrics.values() for each in one}
        for each, value in given.items():
            if value is None or each in (*self.needs, *self.asks, *self.takes, *takes):
                continue
            if each in of_metrics:
                raise InvalidInput(f"{flag(each)} must be left out with --metric {chosen}, which does not use it.")
            raise InvalidInput(f"{flag(each)} must be left out for {self.title}, which does not use it.")
        for each, example in takes.items():
            if given[each] is None and example is not None:
                raise InvalidInput(f"--metric {chosen} needs {flag(each)}; for example {flag(each)} {example}.")
        return self.planner(chosen, given)


def flag(name: str) -> str:
    """How a user writes a parameter: ``--max-groups`` for ``max_groups``."""
    return f"--{name.replace('_', '-')}"


def only(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The flags of these names that were given."""
    return {name: given[name] for name in names if given[name] is not None}
