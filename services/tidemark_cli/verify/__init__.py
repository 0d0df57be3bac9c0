"""`tidemark verify`: the table's files against each other. Shares no code with the services that wrote them,
only the readers of `hudi_format`; no caches, no Kafka.
"""
