"""``spark-rdp plan``: which noise serves a metric best. Starts neither Spark nor Java."""

from __future__ import annotations

import json
from typing import Annotated, Any, Optional

import typer

from spark_rdp.cli.terminal import progress, show
from spark_rdp.errors import InvalidInput, invalid

#: Metrics by name, and the flags each of them takes with an example; None for a flag that may be left out.
METRICS: dict[str, dict[str, str | None]] = {
    "l1": {},
    "l2": {},
    "lp": {"p": "3"},
    "usefulness": {"gamma": "0.1"},
    "mallows": {"p": "1"},
    "relative-entropy": {"prior": "expected.csv", "order": None},
}

# typer evaluates these annotations at run time, on Python 3.10 too.
Number = Optional[float]  # noqa: UP045
Text = Optional[str]  # noqa: UP045


def plan(
    sensitivity: Annotated[
        float, typer.Option(help="The most one privacy unit can change a value.", show_default=False)
    ],
    epsilon: Annotated[Number, typer.Option(help="Privacy budget.", show_default=False)] = None,
    target_error: Annotated[
        Number,
        typer.Option(help="Instead of --epsilon: find the smallest epsilon whose metric value reaches this."),
    ] = None,
    metric: Annotated[str, typer.Option(help=f"What to optimise: {', '.join(METRICS)}.")] = "l2",
    gamma: Annotated[Number, typer.Option(help="usefulness: the largest error that is still useful.")] = None,
    p: Annotated[Number, typer.Option("--p", help="lp and mallows: the order.")] = None,
    prior: Annotated[
        Text, typer.Option(help="relative-entropy: file of the histogram you expect, one weight a line.")
    ] = None,
    order: Annotated[
        Number, typer.Option(help="relative-entropy: the order, 1 (default) for Kullback-Leibler.")
    ] = None,
    mechanism: Annotated[str, typer.Option(help="auto (the best one), or the name of one.")] = "auto",
    delta: Annotated[float, typer.Option(help="Chance of failure allowed; the Gaussian mechanisms need one.")] = 0.0,
    coordinates: Annotated[int, typer.Option(help="How many values one unit can change, each by --sensitivity.")] = 1,
    granularity: Annotated[
        Number, typer.Option(help="Step of the lattice values are released on; 1 for counts.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Add the trace to an error.")] = False,
) -> None:
    """Find the noise that serves a metric best at a privacy budget, and show its rivals."""
    asked = metric_of(metric, gamma=gamma, p=p, prior=prior, order=order)
    if (epsilon is None) == (target_error is None):
        raise InvalidInput("Give either --epsilon or --target-error, one of the two.")
    from spark_rdp.planning import additive, target

    profile: dict[str, Any] = {"sensitivity": sensitivity, "metric": asked, "mechanism": mechanism}
    profile |= {"coordinates": coordinates, "granularity": granularity, "delta": delta}
    with progress("planning"):
        if epsilon is None:
            found = target.plan_for(target_error, **profile)
        else:
            found = additive.plan(epsilon=epsilon, **profile)
    if as_json:
        typer.echo(json.dumps(json.loads(found.to_json()), indent=2))
        return
    from spark_rdp.reporting.table import plan_table

    show(plan_table(found))


def metric_of(name: str, **given: Any) -> Any:
    """The metric that ``--metric`` and its parameters name.

    Args:
        name: A key of METRICS.
        given: The value of each parameter flag, without dashes; None where it was left out.

    Raises:
        InvalidInput: The metric is unknown, lacks a parameter it needs, or has one it does not use.
    """
    from spark_rdp.metrics import Metric

    if name not in METRICS:
        raise invalid("--metric", f"one of {', '.join(METRICS)}", name, "See spark-rdp plan --help.")
    takes = METRICS[name]
    for flag, value in given.items():
        if value is not None and flag not in takes:
            raise InvalidInput(f"--{flag} must be left out with --metric {name}, which does not use it.")
    for flag, example in takes.items():
        if given[flag] is None and example is not None:
            raise InvalidInput(f"--metric {name} needs --{flag}; for example --{flag} {example}.")
    argument: Any = {flag: given[flag] for flag in takes if given[flag] is not None}
    if not argument:
        return Metric.from_spec(name)
    # A single number is written as it is, {usefulness: 5}; several parameters are named.
    named = argument if len(takes) > 1 else argument[next(iter(takes))]
    return Metric.from_spec({name.replace("-", "_"): named})
