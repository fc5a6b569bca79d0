"""What a user asks of a local collection: ``kind: collect``, from YAML or from keyword arguments."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic.json_schema import DEFAULT_REF_TEMPLATE

from spark_rdp.domains import SENSITIVITY
from spark_rdp.errors import InvalidInput
from spark_rdp.planning.local import AUTO, candidates
from spark_rdp.planning.local_metrics import AVERAGE, LocalMetric
from spark_rdp.queries.base import Bound, Epsilon, Refused, Strict, refuse
from spark_rdp.queries.measures import NEVER_INFERRED, TWO_BOUNDS, Column
from spark_rdp.queries.reading import read_yaml
from spark_rdp.queries.release import Output, Source, _plain, check_id, identity

#: Ranges narrower than this share of their bounds hold too few doubles to be told apart.
_NARROWEST = 1e-9


def _mechanism(given: Any) -> Any:
    names = [AUTO, *candidates()]
    if not isinstance(given, str) or given not in names:
        raise refuse("", f"one of {', '.join(names)}", given, f"`{AUTO}` takes the best one for the metric.")
    return given


def _secret(given: Any) -> Any:
    kind, _, place = given.partition(":") if isinstance(given, str) else ("", "", "")
    if kind not in ("env", "file") or not place:
        # What was given is not echoed: it may be the secret itself.
        raise Refused("", " must be env:NAME or file:PATH; the secret itself never belongs into a configuration.")
    return given


def _listed(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


LocalMechanism = Annotated[str, BeforeValidator(_mechanism)]
SecretPlace = Annotated[str, BeforeValidator(_secret), WithJsonSchema({"type": "string", "pattern": "^(env|file):.+"})]
MetricSpec = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})]


class NoisedColumn(Strict):
    """A column of numbers, dates or times; each value is published with noise.

    Args:
        column: The column. A date counts in days, a time in seconds, both since 1970-01-01 UTC.
        lower, upper: The range of the values; every value of it is hidden among all others.
        epsilon: The budget of one report of this column.
        mechanism: ``auto`` or the name of a mechanism.
        metric: The error to keep small: ``average-variance``, ``worst-variance``, ``center-variance``,
            ``{prior-variance: {edges: [...], weights: [...]}}`` or ``{usefulness: gamma}``.
    """

    column: Column = Field(description="Name the column of the values.")
    lower: Bound = Field(description=NEVER_INFERRED)
    upper: Bound = Field(description=NEVER_INFERRED)
    epsilon: Epsilon = Field(description="Each column has a budget of its own; common choices lie between 0.1 and 10.")
    mechanism: LocalMechanism = AUTO
    metric: MetricSpec = AVERAGE

    @model_validator(mode="after")
    def _checked(self) -> NoisedColumn:
        if not self.lower < self.upper:
            raise refuse("lower", f"below upper ({self.upper!r})", self.lower, TWO_BOUNDS)
        widest = max(abs(self.lower), abs(self.upper))
        if self.upper - self.lower < max(SENSITIVITY.lower, _NARROWEST * widest):
            constraint = f"further below upper ({self.upper!r})"
            raise refuse("lower", constraint, self.lower, "Doubles so close cannot be told apart reliably.")
        if self.upper - self.lower > SENSITIVITY.upper:
            raise refuse("upper", f"closer to lower ({self.lower!r})", self.upper, "Use another unit of measurement.")
        try:
            LocalMetric.of(self.metric, self.lower, self.upper, None)
        except InvalidInput as failure:
            text = str(failure)
            raise Refused("metric", text[len("metric") :] if text.startswith("metric ") else f": {text}") from None
        return self


class Memoize(Strict):
    """Who gets the same noise for the same value, for ever: as long as secret, name, column and its plan stay the same.

    A plan made by another version of the package, or with other settings, may be another plan.

    Args:
        by: One column or several that name the device or person.
    """

    by: Annotated[tuple[Column, ...], Field(min_length=1), BeforeValidator(_listed)] = Field(
        description="Name the column of the device or person."
    )


class CollectQuery(Strict):
    """A local collection: every row is published with noise of its own, at once, before anybody looks at it.

    Args:
        name: With a run, the id it is published under. Part of the key of the noise.
        source: Where the rows come from; not needed when a DataFrame is given.
        row_key: Columns that name a row: no two rows share all of them. Two rows that do, and have one value, get one
            noise, which shows that their values are equal.
        columns: What is published with noise.
        invalid: What is done with a value out of range: ``clamp`` moves it into the range, ``error`` stops the job,
            which tells that there was one.
        null_policy: What stands for a null or NaN: ``midpoint`` the middle of the range, noised like any value, so
            that nobody sees who has none; ``drop`` leaves the row out and ``error`` stops the job, which both tell.
        keep: Columns published as they are. Every other column is dropped.
        memoize: Draw the noise per device and value instead of per row.
        secret: Where the persistent secret is, ``env:NAME`` or ``file:PATH``; without one, noise is drawn anew at
            every call.
        output: Where the collection is published.

    Raises:
        InvalidInput: One sentence that names the full path of the first key that cannot be used.
    """

    kind: Literal["collect"] = "collect"
    name: Annotated[str, BeforeValidator(check_id)] = Field(description="Name the collection.")
    source: Source | None = None
    row_key: tuple[Column, ...] = ()
    columns: Annotated[tuple[NoisedColumn, ...], Field(min_length=1)] = Field(description="List what to publish.")
    invalid: Literal["clamp", "error"] = "clamp"
    null_policy: Literal["midpoint", "drop", "error"] = "midpoint"
    keep: tuple[Column, ...] = ()
    memoize: Memoize | None = None
    secret: SecretPlace | None = None
    output: Output | None = None

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> CollectQuery:
        """Read a query file.

        Raises:
            InvalidInput: The file cannot be read, or one sentence about the first key that cannot be used.
        """
        return cls.of(read_yaml(path))

    @classmethod
    def schema(cls, by_alias: bool = True, ref_template: str = DEFAULT_REF_TEMPLATE) -> dict[str, Any]:
        """The JSON schema of a query file."""
        return cls.model_json_schema(by_alias=by_alias, ref_template=ref_template)

    @property
    def noise_key(self) -> tuple[str, ...]:
        """The columns whose values, with the value noised, decide the noise."""
        return self.row_key if self.memoize is None else self.memoize.by

    @property
    def used_columns(self) -> Mapping[str, str]:
        """Each column the query reads, and the key that names it."""
        named = [*self._named("row_key" if self.memoize is None else "memoize.by", self.noise_key)]
        named += [(item.column, f"columns[{place}].column") for place, item in enumerate(self.columns)]
        return dict([*named, *self._named("keep", self.keep)])

    @staticmethod
    def _named(key: str, columns: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        return ((column, f"{key}[{place}]") for place, column in enumerate(columns))

    @model_validator(mode="after")
    def _consistent(self) -> CollectQuery:
        if not self.row_key and self.memoize is None:
            raise Refused(
                "row_key", " must be given. Name the columns that name a row, for example [device, event_id]."
            )
        published: set[str] = set()
        named = [(item.column, f"columns[{place}].column") for place, item in enumerate(self.columns)]
        for column, where in [*named, *self._named("keep", self.keep)]:
            if column.casefold() in published:
                remedy = "Rename one with source.derive; a value that is noised is never published in clear."
                raise refuse(where, "different from every other published column", column, remedy)
            published.add(column.casefold())
        noised = {column.casefold() for column, _ in named}
        by = self.memoize.by if self.memoize else ()
        for column, where in [*self._named("row_key", self.row_key), *self._named("memoize.by", by)]:
            if column.casefold() in noised:
                remedy = "Equal values would get equal noise."
                raise refuse(where, "a column that is not noised", column, remedy)
        return self

    def describe(self) -> dict[str, Any]:
        """The query as JSON, for manifests, with passwords masked."""
        plain: dict[str, Any] = _plain(self.model_dump(mode="python", by_alias=True, exclude_none=True))
        return plain

    def digest(self) -> str:
        """SHA-256 (hex) of all that determines what is published, but for where it goes and where the secret is."""
        content = identity(self.model_dump(mode="python", by_alias=True, exclude_none=True), "output", "secret")
        if self.source is not None:  # definitions build on each other: their order counts
            content["source"]["derive"] = list(content["source"]["derive"].items())
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()
