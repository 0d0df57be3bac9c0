"""Reading the ledger, the decisions and named batches from Kafka: the fold's I/O, shared by all services.

Sits between `epoch_protocol` (pure) and `stream_runtime` (Kafka); holds no rule of its own.
"""
