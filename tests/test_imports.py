"""The house rules that a reader of one file cannot see: who imports whom, who knows Spark, where noise may come from.

Each rule is a function from the source of a module to its breaches, and is shown to catch planted ones.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: A room imports only rooms above it. A file belongs to the room with the longest matching name.
ROOMS = [
    "errors",
    "stages",
    "java",
    "domains",
    "series",
    "lattice",
    "randomness",
    "digests",
    "metrics",
    "mechanisms",
    "consistency",
    "privacy.verify",
    "planning",
    "privacy",
    "queries",
    "releases",
    "collection",
    "unit_budget",
    "outputs",
    "vectors",
    "degrees",
    "ranges",
    "averages",
    "kinds",
    "ledger",
    "folders",
    "stores",
    "publishing",
    "estimation",
    "reporting",
    "spark",
    "ml",
    "demo",
    "cli",
]
#: The public names and the start of ``python -m`` look down on all rooms.
ROOF = ("spark_rdp", "spark_rdp.__main__")
WITH_SPARK = ("spark_rdp.spark", "spark_rdp.ml")
#: Makes data, not noise.
WITH_SEEDED_NUMBERS = ("spark_rdp.demo",)


def within(module: str, rooms: tuple[str, ...]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def room_of(module: str) -> int:
    """The place of a module's room in ROOMS; an error for a module in no room."""
    fitting = [room for room in ROOMS if within(module, (f"spark_rdp.{room}",))]
    assert fitting, f"{module} belongs to no room: give it a place in ROOMS"
    return ROOMS.index(max(fitting, key=len))


def imported(source: str, module: str, *, package: bool = False) -> Iterator[str]:
    """The dotted names a module imports: at the top, in functions, for type checks, relative, by import_module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = parts[: len(parts) - node.level + int(package)]
                base = ".".join([*kept, *([node.module] if node.module else [])])
            # `from spark_rdp import ledger` imports a module, `from spark_rdp.ledger import Ledger` a name in one.
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant))


def outside_spark_room(source: str, module: str, package: bool = False) -> list[str]:
    if within(module, WITH_SPARK):
        return []
    return [name for name in imported(source, module, package=package) if within(name, ("pyspark", "py4j"))]


def against_room_order(source: str, module: str, package: bool = False) -> list[str]:
    if module in ROOF:
        return []
    own = room_of(module)
    names = (name for name in imported(source, module, package=package) if within(name, ("spark_rdp",)))
    return [name for name in names if name in ROOF or (name not in PUBLIC_FACTS and room_of(name) > own)]


#: ``from spark_rdp import __version__`` and the like name no room.
PUBLIC_FACTS = ("spark_rdp.__version__",)


def below_dataframes(source: str, module: str, package: bool = False) -> list[str]:
    """Attributes that do not exist under Spark Connect."""
    forbidden = {"_jdf", "_jvm", "_jsparkSession", "_jsc", "_sc", "sparkContext", "rdd"}
    return [
        node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute) and node.attr in forbidden
    ]


#: Draws of NumPy, SciPy, the standard library and Spark. None of them is cryptographic, and all of them repeat.
DRAWS = re.compile(
    r"(^|\.)(np|numpy)\.random(\.|$)|^random(\.|$)|(^|\.)(default_rng|RandomState|rvs|randn?|uniform|normal|laplace"
    r"|standard_\w+|getrandbits|randrange)$"
)


def weak_randomness(source: str, module: str, package: bool = False) -> list[str]:
    if within(module, WITH_SEEDED_NUMBERS):
        return []
    names = [name for name in imported(source, module, package=package) if DRAWS.search(name)]
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return names + [text for text in map(ast.unparse, calls) if DRAWS.search(text)]


RULES: list[Callable[..., list[str]]] = [outside_spark_room, against_room_order, below_dataframes, weak_randomness]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule: Callable[..., list[str]]) -> None:
    breaches = {}
    files = sorted((ROOT / "spark_rdp").rglob("*.py"))
    assert len(files) > 10
    for path in files:
        parts = path.relative_to(ROOT).with_suffix("").parts
        package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if package else parts)
        found = rule(path.read_text(encoding="utf-8"), module, package)
        if found:
            breaches[module] = found
    assert breaches == {}


@pytest.mark.parametrize(
    ("rule", "module", "source"),
    [
        (outside_spark_room, "spark_rdp.ledger", "import pyspark"),
        (outside_spark_room, "spark_rdp.ledger", "import pyspark.sql.functions as F"),
        (outside_spark_room, "spark_rdp.cli.release", "def f():\n    from pyspark.sql import SparkSession"),
        (outside_spark_room, "spark_rdp.sparkling", "from pyspark import sql"),
        (outside_spark_room, "spark_rdp", "import importlib\nimportlib.import_module('pyspark.sql')"),
        (against_room_order, "spark_rdp.lattice", "from spark_rdp.metrics import L1"),
        (against_room_order, "spark_rdp.lattice", "from spark_rdp import metrics"),
        (against_room_order, "spark_rdp.mechanisms.base", "from ..planning import additive"),
        (
            against_room_order,
            "spark_rdp.mechanisms.base",
            "if TYPE_CHECKING:\n    import spark_rdp.planning.plan",
        ),
        (against_room_order, "spark_rdp.planning.additive", "from spark_rdp.privacy.audit import audit"),
        (against_room_order, "spark_rdp.queries.keys", "def f():\n    import spark_rdp.spark.io"),
        (against_room_order, "spark_rdp.spark.release", "from spark_rdp import cli"),
        (against_room_order, "spark_rdp.ledger", "import spark_rdp"),
        (below_dataframes, "spark_rdp.spark.io", "frame._jdf.queryExecution()"),
        (below_dataframes, "spark_rdp.spark.io", "spark.sparkContext.setLogLevel('OFF')"),
        (below_dataframes, "spark_rdp.spark.io", "frame.rdd.map(f)"),
        (below_dataframes, "spark_rdp.ml.bayes", "spark._jvm.java"),
        (weak_randomness, "spark_rdp.mechanisms.geometric", "import numpy as np\nnp.random.laplace(0, 1)"),
        (weak_randomness, "spark_rdp.mechanisms.geometric", "from numpy.random import default_rng"),
        (weak_randomness, "spark_rdp.mechanisms.geometric", "rng.normal(size=3)"),
        (weak_randomness, "spark_rdp.mechanisms.geometric", "import random"),
        (weak_randomness, "spark_rdp.spark.noise", "F.randn(7)"),
        (weak_randomness, "spark_rdp.privacy.selection", "scipy.stats.dlaplace(1.0).rvs(10)"),
    ],
)
def test_a_planted_breach_is_caught(rule: Callable[..., list[str]], module: str, source: str) -> None:
    assert rule(source, module) != []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("spark_rdp.spark.io", "from pyspark.sql import DataFrame\nfrom spark_rdp.queries import Source"),
        ("spark_rdp.planning.additive", "from spark_rdp.privacy.verify import verify\nfrom .plan import Plan"),
        ("spark_rdp.cli.plan", "from spark_rdp import __version__, spark"),
        ("spark_rdp.randomness", "import secrets\nkey = secrets.token_bytes(32)\nself.normalise(x)"),
    ],
)
def test_what_is_allowed_is_not_caught(module: str, source: str) -> None:
    assert [rule(source, module) for rule in RULES] == [[], [], [], []]


def test_a_module_without_a_room_is_noticed() -> None:
    with pytest.raises(AssertionError, match="belongs to no room"):
        against_room_order("", "spark_rdp.attic")
