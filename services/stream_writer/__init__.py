"""Writes each epoch's files with Spark: one epoch, one Spark job, whatever its size.

`service` is the driver's loop, `coordinator_client` what it asks, `job` the Spark session; `task_entry` is
where a task enters a Python worker, `spark_daemon` where those workers come from. PySpark is imported by
`job`, `task_entry` and `spark_daemon` alone. Why a plain loop and not Structured Streaming:
docs/adr/0003-writer-engine.md.
"""
