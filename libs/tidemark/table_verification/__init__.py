"""`tidemark verify`: compares the table's files with each other.

It uses the readers of `hudi_format`, and nothing of the code that wrote the files: no caches, ledger, Kafka
or service. `verify` says what is compared, `verified_state` what an incremental run takes from the previous
one.
"""
