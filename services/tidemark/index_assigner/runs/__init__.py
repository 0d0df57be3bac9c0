"""Runs: immutable files beside RocksDB that hold the bulk of the record index, searched by whole batches."""
