"""``spark-submit jobs/degree_distribution.py QUERY.yaml [--run RUN]``: ``spark-rdp release`` for ``kind: degrees``."""

from __future__ import annotations

import sys

from spark_rdp.cli import main

if __name__ == "__main__":
    sys.exit(main(["release", *sys.argv[1:]]))
