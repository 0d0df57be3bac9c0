"""Plumbing without domain: time, ids, retries, failpoints, configuration, logs, metrics, Kafka and gRPC
edges.

Every service takes its clock, dice, broker and ids from here, so that a whole table can run inside one test
process. Nothing in this package knows what an epoch, a lane or a Hudi file is.
"""
