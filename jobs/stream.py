"""``spark-submit jobs/stream.py QUERY.yaml [--once]``: the same as ``spark-rdp stream``, exit codes included."""

from __future__ import annotations

import sys

from spark_rdp.cli import main

if __name__ == "__main__":
    sys.exit(main(["stream", *sys.argv[1:]]))
