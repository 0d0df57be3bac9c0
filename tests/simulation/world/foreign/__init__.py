"""What Hudi on Spark does to the table beside Tidemark, under the lock that both keep to.

`engine` carries out the verb `foreign` of a script. What may be cleaned, archived, rolled back and read is
told by `tests.hudi_rules`. Files are made with the product's encoders of bytes; it takes nothing else of the
product (`test_world_independence.py` has the list).

The engine's clock is its own: it does not look at the timeline, it is behind or ahead, and jumps. As Hudi
does it takes its times under the lock and then waits 200 ms. An operation that Hudi itself would lose by its
clock (a log file below the slice that it belongs to, an index entry below the one that it replaces) is left
out: nobody else can cure that.
"""
