"""Writes each epoch's files with Spark: one epoch, one Spark job, whatever its size.

On the driver: `epoch_stream` is the streaming query that drives it, `service` what it does for an epoch,
`coordinator_client` what it asks, `job` the Spark session. In the workers: `spark_daemon` forks them,
`task_entry` is where a task enters, `tasks` what it does. PySpark is imported by `job`, `task_entry` and
`spark_daemon` alone. Figures behind the choices: docs/adr/0003-writer-engine.md.
"""
