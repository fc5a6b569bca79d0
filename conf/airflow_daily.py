"""A release every day, with Airflow (3.0 or newer): put this file into the folder of its DAGs.

Every run is named by the day it is about (`--run {{ ds }}`), never by the time it happens to run. That makes everything
a scheduler does safe: a retry continues the same release, a run that is started twice waits for the first one, a
back-fill of a day that was published reads it back; and each day is charged to the budget once.

Exit codes: 0 done or read back, 2 the configuration cannot be used, 3 the budget does not cover it, 4 failed and worth
a retry. Retries of 2 and 3 change nothing. With `--log-json` every stage is one line of JSON in the log of the task.

The same with cron, at four in the morning, about the day before:
    0 4 * * *  cd /srv/reports && spark-rdp release orders.yaml --run $(date -d yesterday +\\%F) --log-json
"""

from __future__ import annotations

import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "orders_by_country",
    schedule="@daily",
    start_date=datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc),
    catchup=True,  # days that were missed are made up for
    default_args={"retries": 3, "retry_delay": datetime.timedelta(minutes=10)},
):
    # On a cluster: spark-submit jobs/release.py conf/orders.yaml --run {{ ds }} --log-json
    BashOperator(
        task_id="release",
        bash_command="spark-rdp release conf/orders.yaml --run {{ ds }} --log-json",
        cwd="/srv/reports",
    )
