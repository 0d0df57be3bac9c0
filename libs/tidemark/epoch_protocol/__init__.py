"""The epoch protocol: what counts, in which epoch, and what each owner may do next.

Pure decisions over entries of two single-partition Kafka topics, the *ledger* (claims and
transactions of shufflers and assigners) and the *decisions* (written by the coordinator alone).
No Kafka, Spark, gRPC, clock or storage in here: bytes and offsets come in, decisions go out.
ARCHITECTURE.md, "What counts" and "Epochs, writing, commit", states the rules that this package implements.
"""
