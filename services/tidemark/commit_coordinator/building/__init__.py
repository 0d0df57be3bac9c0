"""Three builders, which `bootstrap.py` calls in the order of a start.

1. `parts`: what the process has until its end.
2. `answers`: what answers calls.
3. `table_loop`: what works on the table once it is taken over.
"""
