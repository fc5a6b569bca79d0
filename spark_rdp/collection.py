"""From a collection query to its plans: one noise plan per column. Nothing here looks at data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from spark_rdp.errors import InvalidInput
from spark_rdp.planning.local import plan_local
from spark_rdp.planning.plan import Plan
from spark_rdp.queries import CollectQuery, check_id


@dataclass(frozen=True)
class CollectPlan:
    """The noise of every column of a collection.

    Attributes:
        query_digest: The digest of the query it was made from.
        columns: The plan of each noised column, by its name, in the order of publication.
    """

    query_digest: str
    columns: Mapping[str, Plan]

    @property
    def epsilon(self) -> float:
        """What one report of all columns spends: the sum of theirs, as decimal numbers are added."""
        return float(sum(Decimal(repr(plan.epsilon)) for plan in self.columns.values()))

    def content(self) -> dict[str, Any]:
        """The plan as JSON values."""
        columns = [{"column": name, "plan": json.loads(plan.to_json())} for name, plan in self.columns.items()]
        return {"query_digest": self.query_digest, "columns": columns}

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> CollectPlan:
        """The plan whose `content` it was."""
        columns = {item["column"]: Plan.from_json(json.dumps(item["plan"])) for item in content["columns"]}
        return cls(content["query_digest"], columns)


def plan_collect(query: CollectQuery) -> CollectPlan:
    """Plan the noise of a collection.

    Raises:
        InvalidInput: A mechanism cannot serve its column; the message names the column's place in the query.
    """
    columns: dict[str, Plan] = {}
    for place, item in enumerate(query.columns):
        try:
            plan = plan_local(item.epsilon, item.lower, item.upper, metric=item.metric, mechanism=item.mechanism)
        except InvalidInput as failure:
            raise InvalidInput(f"columns[{place}].{failure}") from None
        columns[item.column] = plan
    return CollectPlan(query.digest(), columns)


def collect_id(query: CollectQuery, run: str | None = None) -> str:
    """The id under which a collection is published and found again: ``name``, or ``name@run``.

    Raises:
        InvalidInput: The run is not made of letters, digits, dots, dashes and underscores.
    """
    return query.name if run is None else f"{query.name}@{check_id(run, 'run')}"
