"""The name of the function by which rows of a table with a partitioned record index get their lanes.

Stored positions in topics belong to lanes, and a lane's index and tombstone rows lie in one partition of
their topics. A version of Tidemark that computes lanes differently would look for the entries of a row in
another lane, and would insert the row a second time. So the name is stored in the table's folder, beside its
`table-id`, when an assigner first starts, and each start compares it.

A global index needs none: a lane is a set of shards there, and Hudi's hash says a key's shard. A coordinator
refuses one beside a stored name (`commit_coordinator.commit.index_shards`). A new ledger has new topics, so
it deletes the name.
"""

from __future__ import annotations

import contextlib

from tidemark.hudi_format.errors import AlreadyExistsError, FileMissingError
from tidemark.hudi_format.index_definitions import IndexKind, read_record_index_kind
from tidemark.hudi_format.partitioned_lanes import LANE_FUNCTION, LANE_FUNCTION_PATH
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import read_text
from tidemark.record_formats.errors import SetupError


def keep_lane_function(storage: Storage) -> None:
    """Stores the name where none is yet. Raises SetupError as `check_lane_function` does."""
    if read_record_index_kind(storage) is IndexKind.PARTITIONED:
        with contextlib.suppress(AlreadyExistsError):
            storage.create(LANE_FUNCTION_PATH, LANE_FUNCTION.encode())
        check_lane_function(storage)


def check_lane_function(storage: Storage) -> None:
    """Raises SetupError when the rows of the table got their lanes by another function. Writes nothing."""
    if read_record_index_kind(storage) is not IndexKind.PARTITIONED:
        return
    try:
        stored = read_text(storage, LANE_FUNCTION_PATH).strip()
    except FileMissingError:
        return
    if stored != LANE_FUNCTION:
        raise SetupError(
            f"{storage.base_uri}/{LANE_FUNCTION_PATH} says that lanes were computed by {stored!r}, and this "
            f"version computes them by {LANE_FUNCTION!r}: rows would be looked up in wrong lanes, and "
            "updates would double them. Start the version that wrote the topics, or begin new ones: let "
            "that version commit all input, stop all services, and run `tidemark table adopt --new-ledger`"
        )
