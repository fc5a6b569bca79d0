"""What a user asks for. The YAML in ``conf/`` is these models, and so is the Python interface."""

from __future__ import annotations

from spark_rdp.queries.collect import CollectQuery, Memoize, NoisedColumn
from spark_rdp.queries.keys import KeyBins, KeyDomain, KeyFile, KeyRange, KeyValue, Listed, Selected
from spark_rdp.queries.measures import (
    AnyMeasure,
    Count,
    CountUnits,
    Histogram,
    Mean,
    Measure,
    NoisedMeasure,
    Quantile,
    Sum,
)
from spark_rdp.queries.release import ROW, LedgerRef, Output, Privacy, ReleaseQuery, Source, check_id

__all__ = [
    "ROW",
    "AnyMeasure",
    "CollectQuery",
    "Count",
    "CountUnits",
    "Histogram",
    "KeyBins",
    "KeyDomain",
    "KeyFile",
    "KeyRange",
    "KeyValue",
    "LedgerRef",
    "Listed",
    "Mean",
    "Measure",
    "Memoize",
    "NoisedColumn",
    "NoisedMeasure",
    "Output",
    "Privacy",
    "Quantile",
    "ReleaseQuery",
    "Selected",
    "Source",
    "Sum",
    "check_id",
]
