"""Work on a table while no coordinator serves it.

The command line's packages import these modules, and nothing else of the coordinator (an import contract in
`pyproject.toml`, "The command line …").

| module | for |
|---|---|
| `table` | describe a table, check it for `doctor`, note that an input topic was removed |
| `adoption` | create a table, adopt one, check one that was moved |
| `moved_table` | continue the ledger of a table that was moved |
| `new_ledger` | begin a new ledger from the table's timeline |
| `recovery` | finish or roll back what a dead coordinator left open, free the lock |
| `index_rebuild` | build the record index anew, with another number of shards |
| `rehearsal` | check whether a coordinator would start, and whether topics and folder belong together |
| `watch` | find out whether a coordinator serves the folder, wherever it runs |
| `dead_letters` | list, show and replay dead letters by reading Kafka |
"""
