"""What every query has in common: strict keys, checked numbers, and errors of one sentence with the full path.

A check that fails raises :class:`Refused`; a check inside a model names the key relative to that model, and
:func:`translate` puts the path in front (``measures[2].lower must be ...``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema, model_validator
from pydantic._internal._model_construction import (
    ModelMetaclass,
)  # the only way to reach it; type(BaseModel) at run time
from pydantic_core import ErrorDetails

from spark_rdp import domains
from spark_rdp.errors import InvalidInput, invalid, missing, unknown_key

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

GENERIC_REMEDY = "`spark-rdp schema release` lists what every key accepts."
#: A message repeats at most this many characters of a configured value.
LONGEST_ECHO = 100
_HERE = "\0"
_MAPPING = "a mapping of keys to values"
#: Tags of a choice that no key of the data names begin with this.
TAG = "kind:"
#: How findings of pydantic itself are worded, by their type.
_CONSTRAINTS = {
    "string_type": "a text",
    "string_too_short": "a text that is not empty",
    "too_short": "a list that is not empty",
    "tuple_type": "a list",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
}


class Refused(InvalidInput):
    """A refused key: ``path`` relative to the model that was being checked, and the rest of the sentence."""

    def __init__(self, path: str, rest: str) -> None:
        super().__init__(path + rest)
        self.path = path
        self.rest = rest


class _Text(str):
    """Text that is shown as it stands."""

    def __repr__(self) -> str:
        return str(self)


def _brief(value: object) -> object:
    text = repr(value)
    return value if len(text) <= LONGEST_ECHO else _Text(f"{text[:LONGEST_ECHO]}...")


def refuse(key: str, constraint: str, value: object, remedy: str) -> Refused:
    """``{key} must be {constraint}; got {value}. {remedy}``; the key is relative to the model, "" is itself."""
    return Refused(key, str(invalid("", constraint, _brief(value), remedy)))


def join(parent: str, child: str) -> str:
    """One dotted path out of two."""
    return parent + child if not parent or not child or child.startswith("[") else f"{parent}.{child}"


def _path(loc: tuple[int | str, ...], given: Any) -> str:
    """The location of an error as the user would write it; the tag of a choice is not part of it."""
    path, indexed = "", False
    for part in loc:
        if indexed and isinstance(given, Mapping) and (given.get("type") == part or str(part).startswith(TAG)):
            indexed = False
            continue
        indexed = isinstance(part, int)
        path = join(path, f"[{part}]" if indexed else str(part))
        try:
            given = given[part]
        except (TypeError, KeyError, IndexError, AttributeError):
            given = None
    return path


def _sentence(error: ErrorDetails, path: str) -> Refused:
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, Refused):
        return Refused(join(path, cause.path), cause.rest)
    if isinstance(cause, InvalidInput):
        text, last = str(cause), path.rpartition(".")[2]
        return Refused(path, text[len(last) :]) if text.startswith(f"{last} ") else Refused(path, f": {text}")
    if error["type"] in ("union_tag_not_found", "union_tag_invalid"):
        given = error["input"].get("type") if isinstance(error["input"], Mapping) else error["input"]
        tags = error.get("ctx", {}).get("expected_tags")
        return refuse(join(path, "type"), f"one of {tags}" if tags else "given", given, GENERIC_REMEDY)
    constraint = _CONSTRAINTS.get(error["type"]) or error["msg"].removeprefix("Input should be ")
    return refuse(path, constraint, error["input"], GENERIC_REMEDY)


def translate(failure: ValidationError, given: Any) -> Refused:
    """The first finding of pydantic as one sentence."""
    error = failure.errors(include_url=False)[0]
    return _sentence(error, _path(error["loc"], given))


class _Worded(ModelMetaclass):
    """Makes ``Model(key=...)`` raise InvalidInput; models nested in it do not pass here, so their path stays whole."""

    def __call__(cls, **given: Any) -> Any:
        try:
            return super().__call__(**given)
        except ValidationError as failure:
            raise translate(failure, given) from None


Model = TypeVar("Model", bound="Strict")


class Strict(BaseModel, metaclass=_Worded):
    """A frozen model that knows all its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, ser_json_inf_nan="constants")

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            known = {field.alias or name: field for name, field in cls.model_fields.items()}
            for key in given:
                if key not in known:
                    text = str(key)
                    raise Refused(text, unknown_key(text, list(known)).args[0][len(text) :])
            for key, field in known.items():
                if field.is_required() and key not in given:
                    raise Refused(key, missing(key, field.description or GENERIC_REMEDY).args[0][len(key) :])
        return given

    @classmethod
    def of(cls: type[Model], given: Mapping[str, Any]) -> Model:
        """Build the model from a mapping, as read from YAML.

        Raises:
            InvalidInput: One sentence that names the full path of the first key that cannot be used.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as failure:
            raise translate(failure, given) from None


def _checked(domain: domains.Real | domains.Whole) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        try:
            return domain.named(_HERE).check(value)
        except InvalidInput as failure:
            raise Refused("", str(failure).removeprefix(_HERE)) from None

    return check


def _schema(domain: domains.Real | domains.Whole) -> WithJsonSchema:
    kind = "integer" if isinstance(domain, domains.Whole) else "number"
    lower = 0.0 if getattr(domain, "or_zero", False) else domain.lower
    return WithJsonSchema({"type": kind, "minimum": lower, "maximum": domain.upper})


Epsilon = Annotated[float, BeforeValidator(_checked(domains.EPSILON)), _schema(domains.EPSILON)]
Delta = Annotated[float, BeforeValidator(_checked(domains.DELTA)), _schema(domains.DELTA)]
Bound = Annotated[float, BeforeValidator(_checked(domains.BOUND)), _schema(domains.BOUND)]
Weight = Annotated[float, BeforeValidator(_checked(domains.WEIGHT)), _schema(domains.WEIGHT)]
Granularity = Annotated[float, BeforeValidator(_checked(domains.GRANULARITY)), _schema(domains.GRANULARITY)]
Level = Annotated[float, BeforeValidator(_checked(domains.LEVEL)), _schema(domains.LEVEL)]
Confidence = Annotated[float, BeforeValidator(_checked(domains.CONFIDENCE)), _schema(domains.CONFIDENCE)]
HistogramBins = Annotated[int, BeforeValidator(_checked(domains.HISTOGRAM_BINS)), _schema(domains.HISTOGRAM_BINS)]
Element = Annotated[int, BeforeValidator(_checked(domains.ELEMENT)), _schema(domains.ELEMENT)]
RowsPerUnit = Annotated[int, BeforeValidator(_checked(domains.ROWS_PER_UNIT)), _schema(domains.ROWS_PER_UNIT)]
MaxReports = Annotated[int, BeforeValidator(_checked(domains.MAX_REPORTS)), _schema(domains.MAX_REPORTS)]
Length = Annotated[int, BeforeValidator(_checked(domains.LENGTH)), _schema(domains.LENGTH)]
MaxGroups = Annotated[int, BeforeValidator(_checked(domains.MAX_GROUPS)), _schema(domains.MAX_GROUPS)]
Maximum = Annotated[int, BeforeValidator(_checked(domains.MAXIMUM)), _schema(domains.MAXIMUM)]
MaxPerGroup = Annotated[int, BeforeValidator(_checked(domains.MAX_PER_GROUP)), _schema(domains.MAX_PER_GROUP)]
Periods = Annotated[int, BeforeValidator(_checked(domains.WINDOW)), _schema(domains.WINDOW)]
MaxDegree = Annotated[int, BeforeValidator(_checked(domains.MAX_DEGREE)), _schema(domains.MAX_DEGREE)]
