"""Many writers of one ledger at once: run as a script by test_ledger_writers.py.

``writing.py URL WRITERS ATTEMPTS`` forks WRITERS processes. Each makes ATTEMPTS reservations, every one of them also
made by one other writer under the same release id, and prints as JSON what was accepted, refused and failed.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from typing import Any

from spark_rdp.errors import BudgetRefused, SparkRdpError
from spark_rdp.ledger import Ledger

DATASET = "orders"
LARGEST = 5


def tasks(pair: int, attempts: int) -> list[tuple[str, int]]:
    """Release ids and charges (millionths) of two writers."""
    generator = random.Random(pair)
    return [(f"{pair}-{number}", generator.randint(1, LARGEST)) for number in range(attempts)]


def write(url: str, writer: int, attempts: int) -> dict[str, Any]:
    """Make the reservations of one writer."""
    ledger = Ledger(url, DATASET)
    told: dict[str, Any] = {"accepted": [], "known": 0, "refused": 0, "unexplained": [], "failed": []}
    for release, charge in tasks(writer // 2, attempts):
        try:
            made = ledger.reserve(None, release, hashlib.sha256(release.encode()).hexdigest(), charge)
            if made.new:
                told["accepted"].append([release, charge])
            else:
                told["known"] += 1
        except BudgetRefused as refusal:
            told["refused"] += 1
            explained = "epsilon is short by" in str(refusal) and "Largest earlier spends: " in str(refusal)
            told["unexplained"] += [] if explained else [str(refusal)]
        except SparkRdpError as failure:
            told["failed"].append(str(failure))
    return told


def main(url: str, writers: int, attempts: int) -> None:
    """Fork the writers and wait for them."""
    children = []
    for writer in range(writers):
        child = os.fork()
        if child == 0:
            line = json.dumps(write(url, writer, attempts)) + "\n"
            with open(f"writer-{writer}.json", "w") as file:
                file.write(line)
            os._exit(0)
        children.append(child)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
