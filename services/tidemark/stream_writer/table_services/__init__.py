"""The merges of compactions, beside the epochs: in bins of operations, each in a child process with a memory
of its own. Spark's tasks start the children (`job.py`), or a plain process does (`process_engine.py`).
"""
