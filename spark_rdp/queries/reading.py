"""Reads a query file: YAML without its traps, and ``${ENV}``."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from spark_rdp.errors import InvalidInput, invalid

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class _Loader(yaml.SafeLoader):
    """YAML without surprises: ``NO``, ``on``, ``007`` and ``12:30`` are text, ``1e-6`` is a number."""

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        node = super().compose_scalar_node(anchor)
        if isinstance(node.value, str) and "${" in node.value:
            node.value = _VARIABLE.sub(self._variable, node.value)
            if node.style is None:  # an unquoted ${NUMBER} is a number, a quoted one stays text
                node.tag = self.resolve(yaml.ScalarNode, node.value, (True, False))
        assert isinstance(node, yaml.ScalarNode)
        return node

    def _variable(self, match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in os.environ:
            raise InvalidInput(
                f"The environment variable {name} must be set, because {self.name} uses ${{{name}}}; "
                f"got nothing. Set it, or write the value into the file."
            )
        return os.environ[name]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                line = key_node.start_mark.line + 1
                raise InvalidInput(f"{key} must be given once; got it again in {self.name}, line {line}. Keep one.")
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in [
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("timestamp", r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "0123456789"),
    ("merge", r"<<", "<"),
]:
    # An empty scalar has no first character; PyYAML looks it up under "".
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), ["" if c == "\0" else c for c in _first]
    )


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = node.value.lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)


def read_yaml(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Read one query file.

    Args:
        path: A YAML file. ``${NAME}`` in a value is replaced by the environment variable.

    Returns:
        The mapping in the file, not checked yet.

    Raises:
        InvalidInput: The file is missing, is not YAML, repeats a key, holds no mapping, or a variable is not set.
    """
    name = os.fspath(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as failure:
        reason = getattr(failure, "strerror", None) or "not UTF-8 text"
        raise invalid("The query file", "a readable text file", name, f"The reason is: {reason}.") from None
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        loader.name = name
        content = loader.get_single_data()
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark
        where = f" Line {mark.line + 1}, column {mark.column + 1}: {failure.problem}." if mark else ""
        raise InvalidInput(f"The query file must be valid YAML; got {name!r}.{where}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as failure:
        if isinstance(failure, InvalidInput):
            raise
        reason = str(failure).splitlines()[0]
        raise InvalidInput(f"The query file must be valid YAML; got {name!r}. The reason is: {reason}.") from None
    finally:
        if loader is not None:
            loader.dispose()
    if not isinstance(content, Mapping):
        raise invalid("The query file", "a mapping of keys to values", name, "Start it with `kind: release`.")
    return content
