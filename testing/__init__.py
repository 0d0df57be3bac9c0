"""Doubles of what lies outside, for tests and simulation: Kafka, storage, clock, ids; not in the product."""
