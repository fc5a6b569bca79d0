"""What a user asks for. The YAML in ``conf/`` is these models, and so is the Python interface."""

from __future__ import annotations

from spark_rdp.queries.cells import Box, CategoryColumn, CellColumn, PlaceColumn
from spark_rdp.queries.collect import AnyColumn, CollectQuery, Memoize, NoisedColumn, Sharing
from spark_rdp.queries.estimate import EstimatedColumn, EstimateQuery
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
from spark_rdp.queries.units import UnitPrivacy

__all__ = [
    "ROW",
    "AnyColumn",
    "AnyMeasure",
    "Box",
    "CategoryColumn",
    "CellColumn",
    "CollectQuery",
    "Count",
    "CountUnits",
    "EstimateQuery",
    "EstimatedColumn",
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
    "PlaceColumn",
    "Privacy",
    "Quantile",
    "ReleaseQuery",
    "Selected",
    "Sharing",
    "Source",
    "Sum",
    "UnitPrivacy",
    "check_id",
]
