"""What a coordinator says of its table, as types: status with its warnings, epochs.

The coordinator makes them; the command line, the page and other programs read them. They travel as messages
of `tidemark.admin.v1` (`messages`), and as the JSON documents that `--json` prints (`documents`).
"""
