"""Every finite mechanism by the name plans carry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spark_rdp.errors import invalid
from spark_rdp.mechanisms.finite.base import Finite
from spark_rdp.mechanisms.finite.domains import Domain, domain_of
from spark_rdp.mechanisms.finite.grids import Grid
from spark_rdp.mechanisms.finite.tight_constraints import tight
from spark_rdp.mechanisms.finite.unbounded import UnboundedRemap


def _unbounded(domain: Domain, epsilon: float) -> Finite:
    if not isinstance(domain, Grid):
        raise invalid("domain", "a grid for unbounded-remap", domain.kind, "Plan again.")
    return UnboundedRemap(domain, epsilon)


#: Called with the domain and the epsilon of the plan; all but one are tight constraints of the domain in the plan.
FINITE: dict[str, Callable[[Domain, float], Finite]] = {
    "tight-constraints": tight,
    "interpolated": tight,
    "truncated-geometric": tight,
    "randomized-response": tight,
    "unbounded-remap": _unbounded,
}


def build_finite(name: str, parameters: Mapping[str, Any]) -> Finite:
    """Rebuild a finite mechanism from the name and the parameters of its plan."""
    if name not in FINITE:
        raise invalid("mechanism", f"one of {', '.join(FINITE)}", name, "The plan was made by another version.")
    return FINITE[name](domain_of(parameters["domain"]), parameters["epsilon"])
