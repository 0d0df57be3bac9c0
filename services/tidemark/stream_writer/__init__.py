"""The stream writer: writes the files of each epoch with one Spark job.

On the driver, `epoch_stream` is the streaming query that drives the writer, `service` does the steps of an
epoch, `coordinator_client` asks the coordinator, and `job` has the Spark session. In Spark's Python workers,
`spark_daemon` forks the workers, `task_entry` takes a task, and `tasks` does its work. Only `job`,
`task_entry` and `spark_daemon` import PySpark. Measurements: docs/adr/0003-writer-engine.md.
"""
