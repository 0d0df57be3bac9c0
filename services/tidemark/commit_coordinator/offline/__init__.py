"""Work on a table that no coordinator serves, and the one door through which the command line comes in: its
packages import these modules and nothing else of the coordinator (`pyproject.toml`, "The command line …").

| module | for |
|---|---|
| `table` | describe, check for `doctor`, note that an input topic left |
| `adoption` | create, adopt, check a moved table |
| `moved_table`, `new_ledger` | the ledger goes on elsewhere; it begins anew |
| `recovery` | end what a dead coordinator left open, free the lock |
| `rehearsal` | would a coordinator start? do topics and folder belong together? |
| `watch` | does a coordinator serve the folder, wherever it runs? |
| `dead_letters` | list, show and replay dead letters from Kafka itself |
"""
