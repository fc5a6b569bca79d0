"""What a noise is: mass functions, exact losses and samplers. Pure NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spark_rdp.errors import invalid
from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.staircase import Staircase

#: Additive mechanisms by the name plans carry; each is called with the parameters of the plan.
ADDITIVE: dict[str, Callable[..., Additive]] = {Geometric.name: Geometric, Staircase.name: Staircase}


def build(name: str, parameters: Mapping[str, Any]) -> Additive:
    """Rebuild an additive mechanism from what `Additive.parameters` returned."""
    if name not in ADDITIVE:
        raise invalid("mechanism", f"one of {', '.join(ADDITIVE)}", name, "The plan was made by another version.")
    return ADDITIVE[name](**parameters)
