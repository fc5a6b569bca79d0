"""Finding published collections and making sure that they can be read as one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from spark_rdp.collection import CollectPlan, ColumnPlan
from spark_rdp.errors import InvalidInput
from spark_rdp.folders import DATA_FILES, MANIFEST, Manifest
from spark_rdp.stores import Folder
from spark_rdp.unit_budget import UnitBudget

_RUN = "run="
#: The log of Spark's sink of files, which says what a stream has published.
SINK_LOG = "_spark_metadata"


@dataclass(frozen=True)
class Collected:
    """One collection or several of the same plans.

    Attributes:
        folders: Where the data files are.
        manifests: The manifest of each folder.
    """

    folders: tuple[Folder, ...]
    manifests: tuple[Manifest, ...]

    @property
    def _first(self) -> Manifest:
        return self.manifests[0]

    @cached_property
    def columns(self) -> dict[str, ColumnPlan]:
        """How each noised column was published."""
        return dict(CollectPlan.of_content(self._first["plan"]).columns)

    @property
    def schema(self) -> str:
        """The columns of the data files and their types."""
        return str(self._first["columns"])

    @property
    def by_run(self) -> bool:
        """Whether every folder is a run, so that the runs are told apart by a column ``run``."""
        return all(folder.name.startswith(_RUN) for folder in self.folders)

    @property
    def grow(self) -> tuple[bool, ...]:
        """Whether each of them is of a stream, which may publish more."""
        return tuple(manifest["kind"] == "stream" for manifest in self.manifests)

    @property
    def rows(self) -> int | None:
        """How many rows were published; None if one of them may still grow."""
        return None if any(self.grow) else sum(int(manifest["rows"]) for manifest in self.manifests)

    @property
    def unit(self) -> tuple[str, ...]:
        """The columns that name the unit whose noise is memoised; empty where every row has noise of its own."""
        unit = self._first["unit"]
        return () if unit == "row" else tuple(unit)

    @cached_property
    def budgets(self) -> tuple[UnitBudget, ...]:
        """What one unit spends in each of them."""
        return tuple(UnitBudget.of_manifest(manifest) for manifest in self.manifests)

    @property
    def null_policy(self) -> str:
        """What was done with missing values."""
        return str(self._first["policies"]["null_policy"])

    @property
    def sources(self) -> list[dict[str, Any]]:
        """What tells these collections from all others, for the manifest of an estimate."""
        facts = ("release_id", "query_digest", "content_digest", "rows")
        return [
            {"content_digest": "none: a stream may publish more"}
            | {fact: manifest[fact] for fact in facts if fact in manifest}
            for manifest in self.manifests
        ]


def find_collections(places: Iterable[str]) -> Collected:
    """Find the collections in some folders: each is a published collection, or holds some in folders ``run=...``.

    Raises:
        InvalidInput: There is none, their plans differ, or their files are not those that were published.
    """
    folders: list[Folder] = []
    for place in places:
        folder = Folder("collection", place)
        names = folder.names()
        runs = [folder.child(name) for name in names if name.startswith(_RUN)]
        found = [folder] if MANIFEST in names else [run for run in runs if MANIFEST in run.names()]
        if not found:
            raise InvalidInput(
                f"collection must be the folder of a published collection, or one with its runs; got {place!r}. There "
                f"is no {MANIFEST} in it."
            )
        folders += [each for each in found if each not in folders]
    manifests = tuple(_manifest(folder) for folder in folders)
    for folder, manifest in zip(folders, manifests, strict=True):
        if _essence(manifest) != _essence(manifests[0]):
            raise InvalidInput(
                f"collection must have the same columns, plans and policies in all folders; {folder} differs from "
                f"{folders[0]}. Estimate them one by one."
            )
        if manifest["kind"] == "collect":
            _check_rows(folder, manifest)
    return Collected(tuple(folders), manifests)


def _manifest(folder: Folder) -> Manifest:
    try:
        manifest: Manifest = json.loads(folder.read(MANIFEST) or b"")
        stream = manifest["kind"] == "stream" and manifest["query"]["output"]["format"].lower() == "parquet"
        if stream or manifest["kind"] == "collect":
            _essence(manifest)
            CollectPlan.of_content(manifest["plan"])
            UnitBudget.of_manifest(manifest)
            return manifest
    except (ValueError, KeyError, TypeError):
        pass
    raise InvalidInput(f"collection must be one that this version published; {folder}/{MANIFEST} is of something else.")


def _essence(manifest: Manifest) -> Sequence[Any]:
    """What collections must share to be read as one."""
    plans = [
        [item[key] for key in ("column", "kind", "lower", "upper", "length", "unsampled", "stream")]
        + [item["share"]["values"], item["share"]["reported"], item.get("cells")]
        for item in manifest["plan"]["columns"]
    ]
    return [plans, manifest["columns"], manifest["unit"], manifest["policies"], manifest["source_types"]]


def _check_rows(folder: Folder, manifest: Manifest) -> None:
    if folder.rows([name for name in folder.names() if fnmatchcase(name, DATA_FILES)]) != manifest["rows"]:
        raise InvalidInput(f"The files in {folder} are not those that were published. Restore the folder from a copy.")
