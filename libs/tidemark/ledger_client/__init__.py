"""Reads the ledger, the decisions and named batches from Kafka, for all services.

The package feeds `epoch_protocol` (pure) from `stream_runtime` (Kafka) and adds no rule of its own.
"""
