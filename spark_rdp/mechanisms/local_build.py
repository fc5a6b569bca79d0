"""Every local mechanism by the name plans carry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spark_rdp.errors import invalid
from spark_rdp.mechanisms.additive_local import AdditiveLocal
from spark_rdp.mechanisms.fitted import Fitted
from spark_rdp.mechanisms.hybrid import Hybrid
from spark_rdp.mechanisms.local import Local
from spark_rdp.mechanisms.podium import Piecewise, Podium
from spark_rdp.mechanisms.two_point import TwoPoint

#: Called with the parameters of the plan. Additive noise carries its own name in its parameters.
LOCAL: dict[str, Callable[..., Local]] = {
    "duchi": TwoPoint,
    "podium": Podium,
    "podium-center": Podium,
    "podium-approximate": Podium,
    "podium-worst": Podium,
    "piecewise": Piecewise,
    "hybrid": Hybrid.rebuild,
    "fitted": Fitted.rebuild,
}


def build_local(name: str, parameters: Mapping[str, Any]) -> Local:
    """Rebuild a local mechanism from the name and the parameters of its plan."""
    if "noise" in parameters:
        return AdditiveLocal.rebuild(**parameters)
    if name not in LOCAL:
        raise invalid("mechanism", f"one of {', '.join(LOCAL)}", name, "The plan was made by another version.")
    return LOCAL[name](**parameters)
