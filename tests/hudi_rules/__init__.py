"""Hudi 1.2.0's rules for a table's files, written down a second time: what counts, what may go, what goes.

Nothing here imports the product, which has rules of its own for the same things; `fastavro` and `pyarrow`
read the files. The simulated engine and the simulation's checkers follow these rules, and
`tests/interop/test_rules_with_hudi.py` and `test_rules_of_writes_with_hudi.py` hold each of them against Hudi
on Spark, but those of a secondary index's entries (`value_entries`): Spark finds rows by them in
`test_secondary_index_of_epochs_with_hudi.py`.
"""
