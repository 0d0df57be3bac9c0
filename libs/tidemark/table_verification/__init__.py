"""`tidemark verify`: the table's files against each other.

Shares no code with what wrote them but the readers of `hudi_format`: no caches, no ledger, no Kafka, no
service.
What is compared: `verify`. What an incremental run takes over from the one before: `verified_state`.
"""
