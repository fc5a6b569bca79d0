"""What a noise is: mass functions, exact losses and samplers. Pure NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spark_rdp.errors import invalid
from spark_rdp.mechanisms import r2dp
from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.gaussian import DiscreteGaussian, GaussianMixture
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.staircase import Staircase

#: Additive mechanisms by the name plans carry; each is called with the parameters of the plan.
ADDITIVE: dict[str, Callable[..., Additive]] = {
    Geometric.name: Geometric,
    Staircase.name: Staircase,
    # One mechanism; the names say how its second fold was chosen.
    "r2dp": r2dp.from_parameters,
    "r2dp-ensemble": r2dp.from_parameters,
    "r2dp-gamma": r2dp.from_parameters,
    "r2dp-uniform": r2dp.from_parameters,
    "r2dp-truncnorm": r2dp.from_parameters,
    "r2dp-ncx2": r2dp.from_parameters,
    "r2dp-rayleigh": r2dp.from_parameters,
    DiscreteGaussian.name: DiscreteGaussian,
    GaussianMixture.name: GaussianMixture,
}


def build(name: str, parameters: Mapping[str, Any]) -> Additive:
    """Rebuild an additive mechanism from what `Additive.parameters` returned."""
    if name not in ADDITIVE:
        raise invalid("mechanism", f"one of {', '.join(ADDITIVE)}", name, "The plan was made by another version.")
    return ADDITIVE[name](**parameters)
