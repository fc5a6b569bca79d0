"""Differentially private releases and local collection on Apache Spark.

``import spark_rdp`` loads nothing but this page: each public name is imported when it is first used, so that
planning needs neither Spark nor Java.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "AveragesQuery": "spark_rdp.queries.averages",
    "BudgetRefused": "spark_rdp.errors",
    "CollectQuery": "spark_rdp.queries",
    "CustomLoss": "spark_rdp.metrics",
    "DegreesQuery": "spark_rdp.queries.degrees",
    "EstimateQuery": "spark_rdp.queries",
    "InvalidInput": "spark_rdp.errors",
    "JobFailed": "spark_rdp.errors",
    "L1": "spark_rdp.metrics",
    "L2": "spark_rdp.metrics",
    "Ledger": "spark_rdp.ledger",
    "Lp": "spark_rdp.metrics",
    "Mallows": "spark_rdp.metrics",
    "Plan": "spark_rdp.planning.plan",
    "PrivateNaiveBayes": "spark_rdp.ml",
    "PrivateNaiveBayesModel": "spark_rdp.ml",
    "RangesQuery": "spark_rdp.queries.ranges",
    "ReleaseQuery": "spark_rdp.queries",
    "SparkRdpError": "spark_rdp.errors",
    "StreamQuery": "spark_rdp.queries.stream",
    "Usefulness": "spark_rdp.metrics",
    "collect": "spark_rdp.spark.collect",
    "estimate": "spark_rdp.spark.estimate",
    "plan": "spark_rdp.planning.additive",
    "register_functions": "spark_rdp.spark.functions",
    "release": "spark_rdp.spark.release",
    "stream": "spark_rdp.spark.stream",
    "watch": "spark_rdp.spark.rolling",
}

if TYPE_CHECKING:
    from spark_rdp.errors import BudgetRefused, InvalidInput, JobFailed, SparkRdpError
    from spark_rdp.ledger import Ledger
    from spark_rdp.metrics import L1, L2, CustomLoss, Lp, Mallows, Usefulness
    from spark_rdp.ml import PrivateNaiveBayes, PrivateNaiveBayesModel
    from spark_rdp.planning.additive import plan
    from spark_rdp.planning.plan import Plan
    from spark_rdp.queries import CollectQuery, EstimateQuery, ReleaseQuery
    from spark_rdp.queries.averages import AveragesQuery
    from spark_rdp.queries.degrees import DegreesQuery
    from spark_rdp.queries.ranges import RangesQuery
    from spark_rdp.queries.stream import StreamQuery
    from spark_rdp.spark.collect import collect
    from spark_rdp.spark.estimate import estimate
    from spark_rdp.spark.functions import register_functions
    from spark_rdp.spark.release import release
    from spark_rdp.spark.rolling import watch
    from spark_rdp.spark.stream import stream

__all__ = [
    "L1",
    "L2",
    "AveragesQuery",
    "BudgetRefused",
    "CollectQuery",
    "CustomLoss",
    "DegreesQuery",
    "EstimateQuery",
    "InvalidInput",
    "JobFailed",
    "Ledger",
    "Lp",
    "Mallows",
    "Plan",
    "PrivateNaiveBayes",
    "PrivateNaiveBayesModel",
    "RangesQuery",
    "ReleaseQuery",
    "SparkRdpError",
    "StreamQuery",
    "Usefulness",
    "collect",
    "estimate",
    "plan",
    "register_functions",
    "release",
    "stream",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
