"""What a user asks of a local collection: ``kind: collect``, from YAML or from keyword arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from spark_rdp.domains import EPSILON, SAMPLE, SENSITIVITY
from spark_rdp.errors import InvalidInput
from spark_rdp.planning.local import AUTO, names
from spark_rdp.planning.local_metrics import AVERAGE, LocalMetric
from spark_rdp.queries.base import TAG, Bound, Epsilon, Length, Refused, Strict, refuse
from spark_rdp.queries.cells import CategoryColumn, PlaceColumn
from spark_rdp.queries.measures import NEVER_INFERRED, TWO_BOUNDS, Column
from spark_rdp.queries.query import Query
from spark_rdp.queries.release import Output, Source, Text, check_id
from spark_rdp.queries.units import UnitPrivacy

#: Ranges narrower than this share of their bounds hold too few doubles to be told apart.
_NARROWEST = 1e-9


def _mechanism(given: Any) -> Any:
    if not isinstance(given, str) or given not in names():
        raise refuse("", f"one of {', '.join(names())}", given, f"`{AUTO}` takes the best one for the metric.")
    return given


def _secret(given: Any) -> Any:
    kind, _, place = given.partition(":") if isinstance(given, str) else ("", "", "")
    if kind not in ("env", "file") or not place:
        # What was given is not echoed: it may be the secret itself.
        raise Refused("", " must be env:NAME or file:PATH; the secret itself never belongs into a configuration.")
    return given


def _sample(given: Any) -> Any:
    if given == AUTO:
        return given
    try:
        return SAMPLE.named("").check(given)
    except InvalidInput as failure:
        raise Refused("", str(failure)) from None


def _listed(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


LocalMechanism = Annotated[str, BeforeValidator(_mechanism)]
Sample = Annotated[
    Any,
    BeforeValidator(_sample),
    WithJsonSchema({"anyOf": [{"const": AUTO}, {"type": "integer", "minimum": 1, "maximum": SAMPLE.upper}]}),
]
SecretPlace = Annotated[str, BeforeValidator(_secret), WithJsonSchema({"type": "string", "pattern": "^(env|file):.+"})]
MetricSpec = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})]


@dataclass(frozen=True)
class Sharing:
    """Values of one row that share one budget.

    Attributes:
        places: Which columns, by their place in the query.
        epsilon: The budget.
        sample: How many of the values a row reports, or ``auto``.
        where: The key of the sample, for messages.
    """

    places: tuple[int, ...]
    epsilon: float
    sample: int | str
    where: str


class NoisedColumn(Strict):
    """A column of numbers, dates or times, or of arrays of them; each value is published with noise.

    Args:
        column: The column. A date counts in days, a time in seconds, both since 1970-01-01 UTC.
        lower, upper: The range of the values; every value of it is hidden among all others.
        epsilon: The budget of one report of this column; without it, the column shares the epsilon of the query.
        length: The column holds arrays of this many elements, which share its budget, each noised on its own.
        sample: For arrays with a budget of their own: how many elements a row reports (see `CollectQuery`).
        mechanism: ``auto`` or the name of a mechanism.
        metric: The error to keep small: ``average-variance``, ``worst-variance``, ``center-variance``,
            ``{prior-variance: {edges: [...], weights: [...]}}`` or ``{usefulness: gamma}``.
    """

    kind: ClassVar[str] = "number"

    column: Column = Field(description="Name the column of the values.")
    lower: Bound = Field(description=NEVER_INFERRED)
    upper: Bound = Field(description=NEVER_INFERRED)
    epsilon: Epsilon | None = None
    length: Length | None = None
    sample: Sample | None = None
    mechanism: LocalMechanism = AUTO
    metric: MetricSpec = AVERAGE

    @property
    def values(self) -> int:
        """How many values a row has in this column."""
        return self.length or 1

    @property
    def sources(self) -> Mapping[str, str]:
        """The columns of the source the values are made of, and their keys."""
        return {self.column: "column"}

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
        if self.sample is not None and (self.length is None or self.epsilon is None):
            remedy = "The columns without an epsilon of their own share the `sample` of the query."
            raise Refused("sample", f" is for arrays that have an epsilon of their own. {remedy}")
        return self


def _kind(given: Any) -> str:
    """The kind of a column by the keys that only columns of this kind have."""
    kinds = (PlaceColumn, CategoryColumn)
    found = [one.kind for one in kinds if isinstance(given, one) or (isinstance(given, Mapping) and one.kind in given)]
    return TAG + (found[0] if found else NoisedColumn.kind)


#: Told apart by ``grid`` and ``categories``.
AnyColumn = Annotated[
    Union[  # noqa: UP007 (evaluated at run time, on Python 3.10 too)
        Annotated[NoisedColumn, Tag("kind:number")],
        Annotated[PlaceColumn, Tag("kind:grid")],
        Annotated[CategoryColumn, Tag("kind:categories")],
    ],
    Discriminator(_kind),
]


class Memoize(Strict):
    """Who gets the same noise for the same value, for ever: as long as secret, name, column and its noise are the same.

    The planner of another version of the package, or other settings, may choose another noise (``stream`` in the
    manifest), which draws and spends anew; a run beside earlier ones of the same name is then refused.

    Args:
        by: One column or several that name the device or person.
    """

    by: Annotated[tuple[Column, ...], Field(min_length=1), BeforeValidator(_listed)] = Field(
        description="Name the column of the device or person."
    )


class CollectQuery(Query):
    """A local collection: every row is published with noise of its own, at once, before anybody looks at it.

    Args:
        name: With a run, the id it is published under. Part of the key of the noise.
        source: Where the rows come from; not needed when a DataFrame is given.
        privacy: The unit to protect and how many of its rows a run publishes at most, so that its whole budget is
            known. Without it, and without memoize, the budget of one unit is unbounded, and the manifest says so.
        row_key: Columns that name a row: no two rows share all of them. Two rows that do, and have one value, get one
            noise, which shows that their values are equal.
        columns: What is published with noise.
        epsilon: One budget for all columns that have none of their own.
        sample: How many values of those columns a row reports, each with an equal part of the budget: ``auto`` for the
            least variance, or a number; all of them is a plain split. Which ones is drawn for each row, never decided
            by data. The others are published as a constant, and the reports are scaled so that means stay unbiased.
        invalid: What is done with a value out of range: ``clamp`` moves it into the range, ``error`` stops the job,
            which tells that there was one. An array that is too long is cut, one that is too short has missing
            elements; with ``error`` both stop the job.
        null_policy: What stands for a null or NaN: ``midpoint`` the middle of the range, noised like any value, so
            that nobody sees who has none; ``drop`` leaves the row out and ``error`` stops the job, which both tell.
        keep: Columns published as they are. Every other column is dropped.
        memoize: Draw the noise per device and value instead of per row.
        secret: Where the persistent secret is, ``env:NAME`` or ``file:PATH``; without one, noise is drawn anew at
            every call.
        output, report: Where the collection and its report go.

    Raises:
        InvalidInput: One sentence that names the full path of the first key that cannot be used.
    """

    _WHERE: ClassVar[tuple[str, ...]] = ("output", "secret", "report")

    kind: Literal["collect"] = "collect"
    name: Annotated[str, BeforeValidator(check_id)] = Field(description="Name the collection.")
    source: Source | None = None
    privacy: UnitPrivacy | None = None
    row_key: tuple[Column, ...] = ()
    columns: Annotated[tuple[AnyColumn, ...], Field(min_length=1)] = Field(description="List what to publish.")
    epsilon: Epsilon | None = None
    sample: Sample | None = None
    invalid: Literal["clamp", "error"] = "clamp"
    null_policy: Literal["midpoint", "drop", "error"] = "midpoint"
    keep: tuple[Column, ...] = ()
    memoize: Memoize | None = None
    secret: SecretPlace | None = None
    output: Output | None = None
    report: Text | None = None

    @property
    def noise_key(self) -> tuple[str, ...]:
        """The columns whose values, with the value noised, decide the noise."""
        return self.row_key if self.memoize is None else self.memoize.by

    @property
    def unit_column(self) -> str | None:
        """The column whose rows are counted; None where they are not."""
        return None if self.privacy is None or self.privacy.by_row else self.privacy.unit

    @property
    def used_columns(self) -> Mapping[str, str]:
        """Each column the query reads, and the key that names it."""
        named = [] if self.unit_column is None else [(self.unit_column, "privacy.unit")]
        named += self._named("row_key" if self.memoize is None else "memoize.by", self.noise_key)
        for place, item in enumerate(self.columns):
            named += [(source, f"columns[{place}].{key}") for source, key in item.sources.items()]
        return dict([*named, *self._named("keep", self.keep)])

    @property
    def sharings(self) -> tuple[Sharing, ...]:
        """The budgets: that of the query and of each column with one of its own, in the order of their first column."""
        found: list[Sharing] = []
        common = tuple(place for place, item in enumerate(self.columns) if item.epsilon is None)
        for place, item in enumerate(self.columns):
            if item.epsilon is not None:
                found.append(Sharing((place,), item.epsilon, item.sample or AUTO, f"columns[{place}].sample"))
            elif place == common[0]:
                assert self.epsilon is not None
                found.append(Sharing(common, self.epsilon, self.sample or AUTO, "sample"))
        return tuple(found)

    @staticmethod
    def _named(key: str, columns: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        return ((column, f"{key}[{place}]") for place, column in enumerate(columns))

    @model_validator(mode="after")
    def _consistent(self) -> CollectQuery:
        if not self.row_key and self.memoize is None:
            raise Refused(
                "row_key", " must be given. Name the columns that name a row, for example [device, event_id]."
            )
        self._check_budgets()
        if self.privacy is not None and self.memoize is not None:
            raise Refused(
                "privacy",
                " must be left out beside memoize. A value that is repeated costs nothing there, so that a unit spends "
                "by its distinct values, not by its rows.",
            )
        published: set[str] = set()
        named = [(item.column, f"columns[{place}].column") for place, item in enumerate(self.columns)]
        for column, where in [*named, *self._named("keep", self.keep)]:
            if column.casefold() in published:
                remedy = "Rename one with source.derive; a value that is noised is never published in clear."
                raise refuse(where, "different from every other published column", column, remedy)
            published.add(column.casefold())
        noised = {source.casefold() for item in self.columns for source in item.sources}
        for column, where in self._named("keep", self.keep):
            if column.casefold() in noised:
                remedy = "A value that is noised is never published in clear."
                raise refuse(where, "a column that is not noised", column, remedy)
        by = self.memoize.by if self.memoize else ()
        for column, where in [*self._named("row_key", self.row_key), *self._named("memoize.by", by)]:
            if column.casefold() in noised:
                remedy = "Equal values would get equal noise."
                raise refuse(where, "a column that is not noised", column, remedy)
        if self.unit_column is not None and self.unit_column.casefold() in noised:
            remedy = "Which rows are published must not depend on a value that is noised."
            raise refuse("privacy.unit", "a column that is not noised", self.unit_column, remedy)
        return self

    def _check_budgets(self) -> None:
        alone = [place for place, item in enumerate(self.columns) if item.epsilon is None]
        if self.epsilon is None and alone:
            remedy = "Each column has a budget of its own, or shares the `epsilon` of the query."
            raise Refused(f"columns[{alone[0]}].epsilon", f" must be given ({EPSILON.constraint}). {remedy}")
        if not alone:
            for key in ("epsilon", "sample"):
                if getattr(self, key) is not None:
                    raise Refused(key, " is for columns without an epsilon of their own; there is none. Remove it.")
        for sharing in self.sharings:
            values = sum(self.columns[place].values for place in sharing.places)
            if sharing.sample != AUTO and int(sharing.sample) > values:
                remedy = "A row cannot report more values than it has."
                raise refuse(sharing.where, f"at most {values}", sharing.sample, remedy)
