"""The memory of a stream that goes on: ``python tests/jobs/soaking.py MINUTES``, by hand.

A stream publishes 4,000 events a second, a tenth of them malformed, in batches of a second. Every half minute two
sizes are taken: the resident memory of its process, its JVM and its Python workers, and what is alive in the heap of
the JVM after a full collection. The heap is of one size from the start, so that the first tells of all that is not in
the heap, and the second of the heap. Ends with 1 if one of them is 5 % or more larger at the end than after two and a
half minutes, when the JVM has compiled what it runs; of either the least of three in a row, because what is thrown away
while it is counted counts, too.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import yaml
from jobs.streaming import query, start, wait_for, write_secret

EVENTS, PAUSE = 2_000, 0.5
WARM, EVERY, SAMPLES, LIMIT = 150, 30, 3, 1.05
HEAP = "--driver-memory 600m --driver-java-options '-Xms600m -XX:+AlwaysPreTouch'"


def produce(folder: Path, stopped: threading.Event) -> None:
    """A file of events every half second, moved into the folder when it is complete."""
    folder.mkdir()
    numbers, file = np.random.default_rng(5), 0
    while not stopped.wait(PAUSE):
        lines = []
        for event, battery in enumerate(numbers.integers(0, 101, EVENTS).tolist(), file * EVENTS):
            load = 50 if event % 10 else "[]"
            lines.append(f'{{"device": {event % 97}, "event_id": {event}, "battery": {battery}, "load": {load}}}')
        hidden = folder / f".{file}.json"
        hidden.write_text("\n".join(lines) + "\n")
        hidden.rename(folder / f"{file}.json")
        file += 1


def sizes(process: psutil.Process) -> dict[str, float]:
    """In MB: resident in the JVM and in all Python; alive in the heap. The JVM must have a `jcmd` beside it."""
    found = {"java": 0.0, "python": 0.0, "alive": 0.0}
    for each in (process, *process.children(recursive=True)):
        try:
            java = "java" in each.name()
            found["java" if java else "python"] += each.memory_info().rss / 1e6
        except psutil.Error:
            continue
        if java:
            command = ["jcmd", str(each.pid), "GC.class_histogram"]  # collects first
            told = subprocess.run(command, capture_output=True, check=True, text=True).stdout
            found["alive"] += int(re.findall(r"^Total +\d+ +(\d+)", told, re.MULTILINE)[0]) / 1e6
    return found


def main(minutes: float) -> int:
    """Run, print a line every half minute, and say how much it grew."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    write_secret(folder)
    given = query(folder, trigger={"every": "1 second"})
    conf = folder / "stream.yaml"
    conf.write_text(yaml.safe_dump(given))
    stopped = threading.Event()
    threading.Thread(target=produce, args=(folder / "in", stopped), daemon=True).start()
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{HEAP} pyspark-shell"
    process = start(conf)
    wait_for(process, "batch")
    threading.Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True).start()
    seen: list[dict[str, float]] = []
    for number in range(int(60 * minutes / EVERY) + 1):
        found = sizes(psutil.Process(process.pid))
        seen.append({"resident": found["java"] + found["python"], "alive": found["alive"]})
        print(f"{EVERY * number:5.0f} s:", ", ".join(f"{name} {size:.0f}" for name, size in found.items()), flush=True)
        time.sleep(EVERY)
    stopped.set()
    process.send_signal(signal.SIGTERM)
    ended = process.wait(timeout=60)
    early, late = seen[WARM // EVERY :][:SAMPLES], seen[-SAMPLES:]
    grown = {name: min(one[name] for one in late) / min(one[name] for one in early) for name in seen[0]}
    print(", ".join(f"{name} {100 * (by - 1):+.1f} %" for name, by in grown.items()), f"; ended with {ended}")
    return int(ended != 0 or max(grown.values()) >= LIMIT)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
