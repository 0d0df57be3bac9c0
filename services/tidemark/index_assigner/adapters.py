"""Small pieces between this service and the outside: the lookup gate, stored snapshots, topics."""

from __future__ import annotations

import hashlib
import threading
from typing import Any, Final, cast

from tidemark.assigner.v1 import assigner_pb2 as pb
from tidemark.assigner.v1 import assigner_pb2_grpc
from tidemark.config import TableConfigFile
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import read_document
from tidemark.index_assigner.errors import AssignerError
from tidemark.ledger_client.fold_reader import SnapshotLoader
from tidemark.ledger_client.topics import topic_specs
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.kafka.ports import Admin

LOOKUP_SERVICE: Final = pb.DESCRIPTOR.services_by_name["IndexAssigner"].full_name
# Written by the coordinator when the ledger began: topic -> partitions.
TOPICS_RECORD: Final = ".hoodie/.aux/tidemark/topics.json"


class NotAssigningError(AssignerError):
    """The process does not run the assign stage, or not yet: ask again."""

    kind = ErrorKind.RETRYABLE


class LookupGate(assigner_pb2_grpc.IndexAssignerServicer):
    """Serves `tidemark.assigner.v1.IndexAssigner` from the start on; the assign stage opens it.

    The server's address is known to the coordinator before the stage can be made.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servicer: assigner_pb2_grpc.IndexAssignerServicer | None = None

    def open(self, servicer: assigner_pb2_grpc.IndexAssignerServicer) -> None:
        """From now on this one answers. It is called on gRPC threads."""
        with self._lock:
            self._servicer = servicer

    def Lookup(self, request: pb.LookupRequest, context: Any) -> pb.LookupResponse:  # noqa: N802 - gRPC's name
        with self._lock:
            servicer = self._servicer
        if servicer is None:
            raise NotAssigningError("this process holds no lane of the index: ask again")
        return cast("pb.LookupResponse", servicer.Lookup(request, context))


def snapshot_loader(storage: Storage) -> SnapshotLoader:
    """Loads the fold's snapshots from the table's folder. Raises CorruptFileError for another content."""

    def load(path: str, sha256: str) -> bytes:
        content: bytes = storage.read(path)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise CorruptFileError(f"{path} does not have the content that the decisions name ({sha256})")
        return content

    return load


def check_topics(config: TableConfigFile, admin: Admin, storage: Storage) -> dict[str, int]:
    """Partitions of Tidemark's own topics. Raises SetupError when one is missing or has another count than
    recorded, CorruptFileError for a damaged record.

    The input topics are the coordinator's business: it grants lanes of those that can be read.
    """
    try:
        recorded = read_document(storage, TOPICS_RECORD, dict[str, int])
    except FileMissingError:
        recorded = {}
    expected = {spec.name: spec.partitions for spec in topic_specs(config)} | recorded
    found: dict[str, int] = {}
    for topic in [spec.name for spec in topic_specs(config)]:
        partitions = admin.partitions(topic)
        if partitions is None:
            raise SetupError(
                f"topic {topic} does not exist: start the coordinator, which creates a table's topics, or "
                "correct kafka.bootstrap.servers"
            )
        if partitions != expected[topic]:
            raise SetupError(
                f"topic {topic} has {partitions} partitions, the table was set up with {expected[topic]}: "
                "lanes and positions rest on it. Is table.index.lanes another in this configuration? If "
                "the topic's content is lost, start anew with new topics (`tidemark table adopt "
                "--new-ledger`)"
            )
        found[topic] = partitions
    return found
