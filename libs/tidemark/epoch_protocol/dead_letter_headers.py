"""Names of the headers of messages in `<table>.dead-letter`, and of records that were produced again.

`index_assigner.shuffle.dead_letters` writes dead letters, and its docstring says what each header means;
`ledger_client.dead_letters` reads them.
"""

from __future__ import annotations

from typing import Final

HEADER_REASON: Final = "tm-reason"
HEADER_DETAIL: Final = "tm-detail"
HEADER_TOPIC: Final = "tm-topic"
HEADER_PARTITION: Final = "tm-partition"
HEADER_OFFSET: Final = "tm-offset"
HEADER_TIMESTAMP: Final = "tm-timestamp-ms"
HEADER_CUT_KEY: Final = "tm-cut-key"
HEADER_CUT_VALUE: Final = "tm-cut-value"
HEADER_CUT_HEADERS: Final = "tm-cut-headers"
HEADER_REPLAYED: Final = "tm-replayed"
ORIGINAL_PREFIX: Final = "tm-header-"
HEADER_REPLAYS: Final = "tm-replays"
"""On a record in an input topic: how often it was produced again out of the dead letters."""
