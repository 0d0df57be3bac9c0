"""What must be true after every step, judged from the outside: the table's files, the topics, the input.

Nothing here imports a module of the product (tests/simulation/test_world_independence.py): names, layouts and
rules are written down a second time, from FORMAT.md, METADATA_TABLE.md and ARCHITECTURE.md, so that a
mistake in the product is not repeated in its judge.
"""
