"""``spark-rdp plan --grid`` and ``--domain``: a map, a scale or categories, with a distance between their cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spark_rdp.cli.plan_model import Model, Planner
from spark_rdp.errors import InvalidInput, invalid, missing

if TYPE_CHECKING:
    from spark_rdp.mechanisms.finite.domains import Domain

EXACT_MATCH = "exact-match"


def _planner(_metric: str | None, given: Mapping[str, Any]) -> Planner:
    from spark_rdp.planning.finite import plan_finite

    domain = _domain(given)
    prior = None
    if given["prior"] is not None:
        from spark_rdp.metrics import read_rows

        prior = [row[-1] for row in read_rows(given["prior"])]
    mechanism = given["mechanism"] or "auto"
    return lambda epsilon: plan_finite(epsilon, domain, mechanism=mechanism, prior=prior)


def _domain(given: Mapping[str, Any]) -> Domain:
    if (given["grid"] is None) == (given["domain"] is None):
        raise InvalidInput("Give either --grid or --domain, one of the two.")
    if given["grid"] is not None:
        return _grid(given)
    for name in ("cell", "span"):
        if given[name] is not None:
            raise InvalidInput(f"--{name} must be left out with --domain; it describes a --grid.")
    from spark_rdp.mechanisms.finite.files import read_domain

    if given["distance"] is None:
        raise missing("--distance", "It says how far apart the points of --domain are, for example euclidean.")
    return read_domain(given["domain"], given["distance"])


def _grid(given: Mapping[str, Any]) -> Domain:
    from spark_rdp.mechanisms.finite.grids import EUCLIDEAN, Grid

    example = "Write cells across and down, for example 100x100, or 50 for a scale."
    sides = given["grid"].lower().split("x")
    if not all(side.isascii() and side.isdigit() and len(side) < 8 for side in sides):
        raise invalid("--grid", "whole numbers joined by x", given["grid"], example)
    if given["cell"] is None:
        raise missing("--cell", "It is the side of a cell, in the unit of distance, for example 1.0.")
    cells = given["cell"].lower().split("x")
    try:
        steps = [float(cell) for cell in (cells if len(cells) == len(sides) else cells * len(sides))]
    except ValueError:
        steps = []
    if len(steps) != len(sides):
        raise invalid("--cell", "a length, or one for each side of the grid", given["cell"], "For example 1.0.")
    shape, span = tuple(int(side) for side in reversed(sides)), given["span"]
    return Grid(shape, tuple(reversed(steps)), given["distance"] or EUCLIDEAN, 1 if span is None else span)


FINITE = Model(
    title="a finite domain",
    needs=(),
    takes=("cell", "distance", "span", "mechanism", "prior"),
    metrics={EXACT_MATCH: {}},
    planner=_planner,
    asks=("grid", "domain"),
)
