"""``spark-submit jobs/estimate.py QUERY.yaml [--run RUN]``: the same as ``spark-rdp estimate``, exit codes included."""

from __future__ import annotations

import sys

from spark_rdp.cli import main

if __name__ == "__main__":
    sys.exit(main(["estimate", *sys.argv[1:]]))
