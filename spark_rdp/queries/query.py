"""What queries of every kind have in common: how they are read, described and told apart."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
from typing import Any, ClassVar, TypeVar

from pydantic.json_schema import DEFAULT_REF_TEMPLATE

from spark_rdp.queries.base import Strict
from spark_rdp.queries.reading import read_yaml

_SECRET_KEY = re.compile(r"pass(word|wd|phrase)?|pwd|secret|token|credential|key", re.IGNORECASE)
_SECRET_PART = re.compile(r"(?i)((?:password|passwd|pwd|secret|token|sig|accesskey)=)[^&;\s]+|(://[^/@:\s]*):[^/@\s]+@")

AnyQuery = TypeVar("AnyQuery", bound="Query")


class Query(Strict):
    """A query, from YAML or from keyword arguments."""

    #: The keys that do not determine what is published.
    _WHERE: ClassVar[tuple[str, ...]] = ("output", "ledger", "report")

    @classmethod
    def from_yaml(cls: type[AnyQuery], path: str | os.PathLike[str]) -> AnyQuery:
        """Read a query file.

        Raises:
            InvalidInput: The file cannot be read, or one sentence about the first key that cannot be used.
        """
        return cls.of(read_yaml(path))

    @classmethod
    def schema(cls, by_alias: bool = True, ref_template: str = DEFAULT_REF_TEMPLATE) -> dict[str, Any]:
        """The JSON schema of a query file."""
        return cls.model_json_schema(by_alias=by_alias, ref_template=ref_template)

    def _dumped(self) -> dict[str, Any]:
        return self.model_dump(mode="python", by_alias=True, exclude_none=True)

    def describe(self) -> dict[str, Any]:
        """The query as JSON, for manifests and reports, with passwords masked."""
        described: dict[str, Any] = _plain(self._dumped())
        return described

    def digest(self) -> str:
        """SHA-256 (hex) of all that determines what is published: not of where it goes, who pays, and passwords."""
        text = json.dumps(self._identity(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def _identity(self) -> dict[str, Any]:
        """What tells one query from another, as JSON.

        Passwords are looked for where a source has them only, in its options and paths: what looks like one in an
        expression or a key counts. Definitions of a source build on each other: their order counts.
        """
        described = {key: value for key, value in self._dumped().items() if key not in self._WHERE}
        source = described.pop("source", None)
        content: dict[str, Any] = _plain(described, mask=False)
        if source is not None:
            content["source"] = {name: _plain(item, name, name in ("options", "path")) for name, item in source.items()}
            content["source"]["derive"] = list(content["source"]["derive"].items())
        return content


def _plain(value: Any, key: str = "", mask: bool = True) -> Any:
    """A value as JSON; dates are marked, so that a date is never taken for the same text."""
    if isinstance(value, dict):
        secret = {name for name in value if key == "options" and _SECRET_KEY.search(str(name))}
        return {str(name): "***" if name in secret else _plain(item, str(name), mask) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, key, mask) for item in value]
    if isinstance(value, datetime.date):
        return {"date": value.isoformat()}
    if isinstance(value, str) and mask:
        return _SECRET_PART.sub(lambda m: f"{m[1]}***" if m[1] else f"{m[2]}:***@", value)
    return value
