"""``spark-rdp plan``: which noise serves a metric best. Starts neither Spark nor Java.

The flags that are given say what is asked: each kind of question is a `Model` in a file of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Optional

import typer

from spark_rdp.cli.plan_central import CENTRAL
from spark_rdp.cli.plan_finite import FINITE
from spark_rdp.cli.plan_local import LOCAL
from spark_rdp.cli.plan_model import Model, Planner
from spark_rdp.cli.plan_selection import QUANTILE
from spark_rdp.cli.terminal import progress, show
from spark_rdp.errors import InvalidInput

#: The kinds of question.
MODELS: tuple[Model, ...] = (CENTRAL, LOCAL, FINITE, QUANTILE)

# typer evaluates these annotations at run time, on Python 3.10 too.
Number = Optional[float]  # noqa: UP045
Count = Optional[int]  # noqa: UP045
Flag = Optional[bool]  # noqa: UP045
Text = Optional[str]  # noqa: UP045

_METRICS = "; ".join(f"for {model.title}: {', '.join(model.metrics)}" for model in MODELS if model.metrics)


def plan(
    *,
    # What every question has
    epsilon: Annotated[Number, typer.Option(help="Privacy budget.", show_default=False)] = None,
    target_error: Annotated[
        Number,
        typer.Option(help="Instead of --epsilon: find the smallest epsilon whose metric value reaches this."),
    ] = None,
    budget_sweep: Annotated[
        bool, typer.Option("--budget-sweep", help="Instead of --epsilon: show the metric for epsilons from 0.1 to 10.")
    ] = False,
    metric: Annotated[Text, typer.Option(help=f"What to optimise; {_METRICS}.")] = None,
    mechanism: Annotated[Text, typer.Option(help="auto (the best one, default), or the name of one.")] = None,
    gamma: Annotated[Number, typer.Option(help="usefulness: the largest error that is still useful.")] = None,
    p: Annotated[Number, typer.Option("--p", help="lp and mallows: the order.")] = None,
    prior: Annotated[
        Text,
        typer.Option(
            help="relative-entropy and prior-variance: file of the histogram you expect, one weight a line, or value "
            "and weight; a value is where the bin of a prior-variance begins."
        ),
    ] = None,
    order: Annotated[
        Number, typer.Option(help="relative-entropy: the order, 1 (default) for Kullback-Leibler.")
    ] = None,
    # Central model
    sensitivity: Annotated[
        Number, typer.Option(help="The most one privacy unit can change a value.", show_default=False)
    ] = None,
    coordinates: Annotated[
        Count, typer.Option(help="How many values one unit can change, each by --sensitivity; 1 if left out.")
    ] = None,
    norm: Annotated[
        Text, typer.Option(help="l1: --sensitivity bounds the sum of all changes; for Laplace noise only.")
    ] = None,
    granularity: Annotated[
        Number, typer.Option(help="Step of the lattice values are released on; 1 for counts.")
    ] = None,
    delta: Annotated[Number, typer.Option(help="Chance of failure allowed; the Gaussian mechanisms need one.")] = None,
    # Local model
    lower: Annotated[Number, typer.Option(help="Local model: the least a value can be.")] = None,
    upper: Annotated[Number, typer.Option(help="Local model: the most a value can be.")] = None,
    limit: Annotated[
        Flag, typer.Option("--limit", help="Local model: show how good any noise could be; takes some seconds.")
    ] = None,
    # Finite domains
    grid: Annotated[
        Text, typer.Option(help="Finite domain: cells of a map such as 100x100, or of a scale such as 50.")
    ] = None,
    cell: Annotated[
        Text, typer.Option(help="Grid: the side of a cell, in the unit of distance; 1.0 or 1.0x0.5.")
    ] = None,
    span: Annotated[
        Count, typer.Option(help="Grid: cells that one unit of distance reaches; the distance is rounded up.")
    ] = None,
    domain: Annotated[Text, typer.Option(help="Finite domain: CSV file of its points, one a line.")] = None,
    distance: Annotated[
        Text,
        typer.Option(
            help="Grid: euclidean (default), l1, chebyshev. Domain: these, line, discrete, hamming, or matrix: the "
            "file holds the distances."
        ),
    ] = None,
    # Quantiles
    level: Annotated[Number, typer.Option(help="Quantile: 0.5 for the median.")] = None,
    candidates: Annotated[Count, typer.Option(help="Quantile: how many values are declared for it.")] = None,
    max_groups: Annotated[Count, typer.Option(help="Quantile: the most groups one unit is in; 1 if left out.")] = None,
    max_per_group: Annotated[
        Count, typer.Option(help="Quantile: the most rows one unit has in a group; 1 if left out.")
    ] = None,
    # Output
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Draw the --budget-sweep into this file, .png or .svg.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Add the trace to an error.")] = False,
) -> None:
    """Find the noise that serves a metric best at a privacy budget, and show its rivals."""
    given = {
        "mechanism": mechanism,
        "gamma": gamma,
        "p": p,
        "prior": prior,
        "order": order,
        "sensitivity": sensitivity,
        "coordinates": coordinates,
        "norm": norm,
        "granularity": granularity,
        "delta": delta,
        "lower": lower,
        "upper": upper,
        "limit": limit,
        "grid": grid,
        "cell": cell,
        "span": span,
        "domain": domain,
        "distance": distance,
        "level": level,
        "candidates": candidates,
        "max_groups": max_groups,
        "max_per_group": max_per_group,
    }
    asked = [model for model in MODELS if model.asked_by(given)]
    if len(asked) != 1:
        choices = ", or ".join(model.asked_with for model in MODELS)
        raise InvalidInput(f"Say what is asked with {choices}: exactly one of these.")
    planner = asked[0].plan(metric, given)
    if [epsilon is None, target_error is None, not budget_sweep].count(False) != 1:
        raise InvalidInput("Give one of --epsilon, --target-error and --budget-sweep.")
    if out is not None and not budget_sweep:
        raise InvalidInput("--out must be left out without --budget-sweep: it is the file of its picture.")
    if budget_sweep:
        _sweep(planner, as_json, out)
        return
    with progress("planning"):
        if epsilon is not None:
            found = planner(epsilon)
        else:
            from spark_rdp.planning.target import smallest

            found = smallest(planner, target_error)
    if as_json:
        typer.echo(json.dumps(json.loads(found.to_json()), indent=2))
        return
    from spark_rdp.reporting.table import plan_table

    show(plan_table(found))


def _sweep(planner: Planner, as_json: bool, out: Path | None) -> None:
    """Show the best metric value for many epsilons, and draw it."""
    from spark_rdp.planning.sweep import sweep
    from spark_rdp.reporting.sweep import check_picture, draw, sweep_table

    if out is not None:
        check_picture(out)  # before the work
    with progress("planning"):
        plans = sweep(planner)
        if out is not None:
            draw(plans, out)
    if as_json:
        typer.echo(json.dumps([json.loads(plan.to_json()) for plan in plans], indent=2))
        return
    show(sweep_table(plans))
    if out is not None:
        typer.echo(f"The picture is {out}.")
