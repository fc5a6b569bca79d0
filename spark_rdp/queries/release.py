"""What a user asks of a release: ``kind: release``, from YAML or from keyword arguments."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from spark_rdp.queries.base import Delta, Epsilon, MaxGroups, Strict, refuse
from spark_rdp.queries.keys import GroupBy, Selected
from spark_rdp.queries.measures import AnyMeasure, Count, Histogram, Mean, Quantile
from spark_rdp.queries.query import Query

#: The privacy unit when every row is protected by itself.
ROW = "row"
_ID_RULE = "at most 128 letters, digits, dots, dashes and underscores, the first a letter or digit"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_id(value: Any, place: str = "") -> str:
    """A name that can be part of a release id and of a path: letters, digits, dots, dashes and underscores."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise refuse(place, _ID_RULE, value, "Rename it.")
    return value


def _paths(given: Any) -> Any:
    paths = (given,) if isinstance(given, (str, os.PathLike)) else given
    if (
        not isinstance(paths, Sequence)
        or not paths
        or not all(isinstance(p, (str, os.PathLike)) and os.fspath(p) for p in paths)
    ):
        raise refuse("", "a path or a list of paths", given, "Name the files to read.")
    return tuple(str(os.fspath(path)) for path in paths)


def _measures(given: Any) -> Any:
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or not given:
        raise refuse(
            "", "a list with at least one measure", given, "For example [{name: rows, type: count, max_per_group: 1}]."
        )
    return tuple(given)


def _option(value: Any) -> Any:
    if value is None or not isinstance(value, (str, bool, int, float)):
        raise refuse("", "a text, a number or true/false", value, "These options are handed to the reader.")
    return value


Text = Annotated[str, Field(min_length=1)]
Option = Annotated[str | bool | int | float, BeforeValidator(_option)]


class Source(Strict):
    """Where the rows come from: files of a format, or a table of the catalogue.

    Args:
        format: A format of Spark's reader, such as csv, json, parquet or orc.
        path: One path or several.
        options: Handed to the reader.
        ddl: Columns and types, written ``schema`` in a file; needed for csv and json, because it is never inferred.
        derive: New columns, each a SQL expression over the columns of the same row.
        table: A table instead of files.
    """

    format: Text | None = None
    path: Annotated[tuple[str, ...], BeforeValidator(_paths)] | None = None
    options: dict[str, Option] = Field(default_factory=dict)
    ddl: Text | None = Field(default=None, alias="schema")
    derive: dict[str, Text] = Field(default_factory=dict)
    table: Text | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Source:
        if self.table is not None:
            for key, value in (("path", self.path), ("format", self.format), ("schema", self.ddl)):
                if value is not None:
                    raise refuse(key, "left out beside table", value, "Read either files or a table.")
            return self
        if self.format is None:
            raise refuse("format", "given", None, "For example csv or parquet; or name a table instead.")
        if self.path is None and self.format in ("csv", "json", "parquet", "orc", "text"):
            raise refuse("path", "given", None, "Name the files to read, or a table instead.")
        if self.ddl is None and self.format in ("csv", "json"):
            remedy = 'Types are never inferred: write for example "id BIGINT, price DOUBLE".'
            raise refuse("schema", f"given for {self.format}", None, remedy)
        return self


class Privacy(Strict):
    """What is protected, and how much.

    Args:
        unit: The column that names the person or thing to protect; ``row`` when every row is its own.
        epsilon: The budget of the whole release.
        delta: Spent by a private selection of keys (``group_by.delta`` of it); the rest is shared by weight among the
            measures that ask for Gaussian noise by name. Everything else, ``auto`` included, is pure.
        max_groups: The most groups one unit contributes to.
        neighbours: ``add-remove`` one unit, or ``replace-one`` by another (twice the sensitivity).
    """

    unit: Text = Field(description="Name the column of the privacy unit, or write row to protect every row by itself.")
    epsilon: Epsilon = Field(description="Common choices lie between 0.1 and 10.")
    delta: Delta = 0.0
    max_groups: MaxGroups | None = None
    neighbours: Literal["add-remove", "replace-one"] = "add-remove"

    @property
    def by_row(self) -> bool:
        """Whether every row is its own unit."""
        return self.unit == ROW


class Output(Strict):
    """Where the release is published."""

    format: Literal["parquet"] = "parquet"
    path: Text = Field(description="Name the directory of the publication.")


class LedgerRef(Strict):
    """The ledger that is charged, and the data set the charge counts against.

    Args:
        url: A SQLite file or a PostgreSQL server.
        dataset: Two queries about overlapping data name the same one; nothing can find that out for you.
        fingerprint: What the data set is, if its budget was opened with one: a path, or a table with its version.
    """

    url: Text = Field(description='For example "sqlite:///budget.db".')
    dataset: Text = Field(description="Name the data set as in `spark-rdp ledger create`.")
    fingerprint: Text | None = None


class ReleaseQuery(Query):
    """A release of statistics per group.

    Args:
        name: With a run, the release id.
        source: Where the rows come from; not needed when a DataFrame is given.
        privacy: Unit, budget and neighbours.
        group_by: Declared keys per column, crossed; or a private selection; without it there is one overall row.
        measures: What is published about each group.
        output, ledger, report: Where results, charge and report go.

    Raises:
        InvalidInput: One sentence that names the full path of the first key that cannot be used.
    """

    kind: Literal["release"] = "release"
    name: Annotated[str, BeforeValidator(check_id)] = Field(description="Name the release.")
    source: Source | None = None
    privacy: Privacy = Field(description="Give at least unit and epsilon.")
    group_by: GroupBy | None = None
    measures: Annotated[tuple[AnyMeasure, ...], BeforeValidator(_measures)] = Field(description="List what to publish.")
    output: Output | None = None
    ledger: LedgerRef | None = None
    report: Text | None = None

    @property
    def selects(self) -> Selected | None:
        """The private selection of keys, if the keys are not declared."""
        return self.group_by if isinstance(self.group_by, Selected) else None

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The columns of the group key, in order."""
        if self.group_by is None:
            return ()
        return self.group_by.select if isinstance(self.group_by, Selected) else tuple(self.group_by)

    @property
    def declared_size(self) -> int | None:
        """How many groups are declared; None when a file or a selection decides."""
        if isinstance(self.group_by, Selected):
            return None
        sizes = [domain.size for domain in (self.group_by or {}).values()]
        return None if None in sizes else math.prod(size for size in sizes if size is not None)

    @property
    def groups_per_unit(self) -> int:
        """The most groups one unit can change: max_groups, or all of them when there are fewer; 1 for rows."""
        if self.privacy.by_row or self.group_by is None or self.privacy.max_groups is None:
            return 1
        size = self.declared_size
        return self.privacy.max_groups if size is None else max(1, min(self.privacy.max_groups, size))

    @model_validator(mode="after")
    def _consistent(self) -> ReleaseQuery:
        self._check_names()
        self._check_caps()
        self._check_delta()
        return self

    def _check_names(self) -> None:
        taken: dict[str, str] = {}
        selected = self.selects is not None
        for place, column in enumerate(self.group_columns):
            where = f"group_by.select[{place}]" if selected else "group_by"
            if not column:
                raise refuse(where, "the name of a column", column, "Name a column of the source.")
            if column.casefold() in taken:
                raise refuse(where, "columns that differ by more than case", column, "Rename one with source.derive.")
            taken[column.casefold()] = f"the group column {column}"
        for place, measure in enumerate(self.measures):
            for column in (measure.name, f"{measure.name}_low", f"{measure.name}_high"):
                if column.casefold() in taken:
                    other = taken[column.casefold()]
                    constraint = f"different from {other} in all its columns"
                    raise refuse(f"measures[{place}].name", constraint, measure.name, f"Both would publish {column}.")
            for column in (measure.name, f"{measure.name}_low", f"{measure.name}_high"):
                taken[column.casefold()] = f"measures[{place}].name ({measure.name})"

    def _check_caps(self) -> None:
        privacy = self.privacy
        if privacy.by_row or self.group_by is None:
            if privacy.max_groups not in (None, 1):
                why = "every row lies in one group" if privacy.by_row else "there is one overall row"
                raise refuse("privacy.max_groups", f"left out, because {why}", privacy.max_groups, "Remove it.")
        elif privacy.max_groups is None:
            remedy = "It is the most groups one unit may contribute to."
            raise refuse("privacy.max_groups", "given when the unit is a column", None, remedy)
        for place, measure in enumerate(self.measures):
            key = f"measures[{place}].max_per_group"
            if not isinstance(measure, (Count, Mean, Histogram, Quantile)):
                continue
            if measure.max_per_group is None and not privacy.by_row:
                remedy = "It is the most rows one unit may contribute to a group."
                raise refuse(key, "given when the unit is a column", None, remedy)
            if privacy.by_row and measure.max_per_group not in (None, 1):
                raise refuse(key, "left out, because every row is its own unit", measure.max_per_group, "Remove it.")

    def _check_delta(self) -> None:
        delta, selection = self.privacy.delta, self.selects
        asking = [place for place, measure in enumerate(self.measures) if measure.needs_delta]
        needs = f"because measures[{asking[0]}].mechanism is Gaussian" if asking else ""
        if selection is None:
            if delta > 0 and not asking:
                remedy = "Remove it; only a selection of keys and Gaussian noise asked for by name need one."
                raise refuse("privacy.delta", "0, because nothing in this query uses it", delta, remedy)
            if asking and delta == 0:
                raise refuse("privacy.delta", f"above 0, {needs}", delta, "For example 1.0e-6.")
            return
        if selection.delta == 0:
            raise refuse("group_by.delta", "above 0", selection.delta, "For example 1.0e-6.")
        if not selection.delta <= delta:
            constraint = f"at least group_by.delta ({selection.delta!r})"
            raise refuse("privacy.delta", constraint, delta, "The selection of keys spends it.")
        if asking and selection.delta == delta:
            constraint = f"above group_by.delta ({selection.delta!r}), {needs}"
            raise refuse("privacy.delta", constraint, delta, "Noise and selection share it.")

    def _identity(self) -> dict[str, Any]:
        content = super()._identity()
        if self.group_by is not None and self.selects is None:  # the order of columns counts
            content["group_by"] = list(content["group_by"].items())
        return content
