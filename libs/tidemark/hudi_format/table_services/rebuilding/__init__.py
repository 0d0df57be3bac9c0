"""Builds a new record index from the rows, with as many shards as are asked for, and switches to it
(docs/adr/0016-rebuild-index.md).

| module | for |
|---|---|
| `numbers` | whether a number of shards can be had, and what a rebuild costs; pure |
| `slice_entries` | the entries of a file slice's live rows, divided by shard |
| `shard_files` | shards' base files from unordered entries, written and read back, in bounded memory |
| `planning` | which rows are indexed, and the commit by which the metadata table shows the index |
| `documents` | what a rebuild wrote and where it stands, as JSON |
| `switching` | the steps that put the new index in the place of the former one, and what follows on a crash |
"""
