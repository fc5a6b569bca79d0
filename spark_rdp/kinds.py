"""The kinds of queries that are released, and the one place that tells them apart before Spark is needed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from spark_rdp.averages import plan_averages
from spark_rdp.degrees import plan_degrees
from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.queries.averages import AveragesQuery
from spark_rdp.queries.degrees import DegreesQuery
from spark_rdp.queries.ranges import RangesQuery
from spark_rdp.queries.reading import read_yaml
from spark_rdp.queries.release import ReleaseQuery
from spark_rdp.ranges import plan_ranges
from spark_rdp.releases import ReleasePlan, plan_release
from spark_rdp.vectors import VectorPlan

AnyQuery = ReleaseQuery | DegreesQuery | RangesQuery | AveragesQuery
AnyPlan = ReleasePlan | VectorPlan

#: What ``kind`` may be in a file that `spark-rdp release` reads.
QUERIES: Mapping[str, type[AnyQuery]] = {
    "release": ReleaseQuery,
    "degrees": DegreesQuery,
    "ranges": RangesQuery,
    "averages": AveragesQuery,
}


def read_query(path: str | os.PathLike[str]) -> AnyQuery:
    """Read a query file of any kind that is released.

    Raises:
        InvalidInput: The file cannot be read, or one sentence about the first key that cannot be used.
    """
    given = read_yaml(path)
    kind = given.get("kind", "release")
    if not isinstance(kind, str) or kind not in QUERIES:
        raise invalid("kind", f"one of {', '.join(QUERIES)}", kind, "Files of other kinds have verbs of their own.")
    return QUERIES[kind].of(given)


def plan_query(query: AnyQuery) -> AnyPlan:
    """Plan the noise of a query. Nothing here looks at data.

    Raises:
        InvalidInput: The budget is too small, or the numbers of the query do not fit each other.
    """
    if isinstance(query, DegreesQuery):
        return plan_degrees(query)
    if isinstance(query, RangesQuery):
        return plan_ranges(query)
    if isinstance(query, AveragesQuery):
        return plan_averages(query)
    return plan_release(query)


def plan_from_json(text: str) -> AnyPlan:
    """Read back the plan of a manifest.

    Raises:
        InvalidInput: The text is not a plan of this version.
    """
    try:
        one_vector = "noise" in json.loads(text)
    except (ValueError, TypeError):
        raise InvalidInput("The plan must be the text of a release plan of this version. Plan again.") from None
    return VectorPlan.from_json(text) if one_vector else ReleasePlan.from_json(text)
