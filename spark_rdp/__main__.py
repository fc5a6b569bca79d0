"""``python -m spark_rdp`` is ``spark-rdp``."""

from __future__ import annotations

import sys

from spark_rdp.cli import main

sys.exit(main())
