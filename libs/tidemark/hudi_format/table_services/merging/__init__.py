"""The merges of compactions: a slice's base file with its log files becomes the next base file, in memory
that depends neither on the size of the file group nor on that of its logs.

What counts, and which version of a key wins, is decided where readers decide it (`file_group/merge.py`,
`metadata_table/log_records.py`, a partition's own rule). A merge reads exactly the files that its operation
names and lists nothing. Equal input gives equal output, so that of two tasks with one operation either
file will do.
"""
