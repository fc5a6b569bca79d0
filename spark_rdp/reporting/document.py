"""One self-contained HTML file from a template."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from spark_rdp.errors import JobFailed


def fill(template: str, **values: Any) -> str:
    """The text of a page; whatever comes from data or configuration is escaped."""
    environment = Environment(
        loader=PackageLoader("spark_rdp.reporting"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template(template).render(**values)


def identity(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What names a publication: its digests, and the versions that made it."""
    digests = (("Query", "query_digest"), ("Content", "content_digest"))
    facts = [(label, str(manifest[key])) for label, key in digests if key in manifest]
    versions = manifest.get("versions", {})
    return [*facts, ("Versions", ", ".join(f"{name} {version}" for name, version in sorted(versions.items())))]


def write(text: str, target: Path) -> Path:
    """Write a page; one that exists is replaced as a whole.

    Returns:
        The path of the page.

    Raises:
        JobFailed: The page cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(name, 0o644)
        os.replace(name, target)
    except OSError as failure:
        again = "What it explains is published; run the same command again for the page."
        raise JobFailed(f"The report {target} could not be written ({failure.strerror}). {again}") from None
    return target
