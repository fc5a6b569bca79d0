"""What every query shares that is published once under a release id and paid from a ledger."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from spark_rdp.queries.query import Query
from spark_rdp.queries.release import LedgerRef, Output, Source, Text, check_id


class PublishedQuery(Query):
    """A query with a name, a source, a place for its result and a ledger.

    Args:
        name: With a run, the release id.
        source: Where the rows come from; not needed when a DataFrame is given.
        output, ledger, report: Where results, charge and report go.
    """

    name: Annotated[str, BeforeValidator(check_id)] = Field(description="Name the release.")
    source: Source | None = None
    output: Output | None = None
    ledger: LedgerRef | None = None
    report: Text | None = None

    def _identity(self) -> dict[str, Any]:
        content = super()._identity()
        for key in ("domain", "group_by"):  # rows and columns are published in the order of these
            if isinstance(content.get(key), dict):
                content[key] = list(content[key].items())
        return content
