"""``spark-submit jobs/collect.py QUERY.yaml [--run RUN]``: the same as ``spark-rdp collect``, exit codes included."""

from __future__ import annotations

import sys

from spark_rdp.cli import main

if __name__ == "__main__":
    sys.exit(main(["collect", *sys.argv[1:]]))
