"""The epoch protocol: which transactions count, in which epoch, and what each owner may do next.

The package makes pure decisions over the entries of two Kafka topics with one partition each: the *ledger*
(claims and transactions of shufflers and assigners) and the *decisions* (written by the coordinator alone).
It takes bytes and offsets and returns decisions; it knows no Kafka, Spark, gRPC, clock or storage.
ARCHITECTURE.md, "What counts" and "Epochs, writing, commit", states the rules that this package implements.
"""
