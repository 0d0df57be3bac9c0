"""The types in which a coordinator describes its table: status, warnings, epochs.

The coordinator fills them; the command line, the page and other programs read them. They are sent as messages
of `tidemark.admin.v1` and as the JSON documents that `--json` prints (`messages`).
"""
