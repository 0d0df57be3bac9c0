"""What connects this service to the outside: the gRPC lookup service, the fold's snapshots, topic checks."""

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
    """The process does not run the assign stage, or has not opened it yet: the caller may ask again."""

    kind = ErrorKind.RETRYABLE


class LookupGate(assigner_pb2_grpc.IndexAssignerServicer):
    """Serves `tidemark.assigner.v1.IndexAssigner` from the start; the assign stage opens it later.

    A process tells the coordinator the address of its gRPC server when it joins, and the assign stage is made
    from the coordinator's answer. So the server runs before the stage exists, and refuses lookups until then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servicer: assigner_pb2_grpc.IndexAssignerServicer | None = None

    def open(self, servicer: assigner_pb2_grpc.IndexAssignerServicer) -> None:
        """Passes all further lookups to ``servicer``, on gRPC threads."""
        with self._lock:
            self._servicer = servicer

    def Lookup(self, request: pb.LookupRequest, context: Any) -> pb.LookupResponse:  # noqa: N802 - gRPC's name
        return cast("pb.LookupResponse", self._opened().Lookup(request, context))

    def LookupBatch(self, request: pb.LookupBatchRequest, context: Any) -> pb.LookupBatchResponse:  # noqa: N802
        return cast("pb.LookupBatchResponse", self._opened().LookupBatch(request, context))

    def Warm(self, request: pb.WarmRequest, context: Any) -> pb.WarmResponse:  # noqa: N802
        return cast("pb.WarmResponse", self._opened().Warm(request, context))

    def _opened(self) -> assigner_pb2_grpc.IndexAssignerServicer:
        with self._lock:
            servicer = self._servicer
        if servicer is None:
            raise NotAssigningError("this process holds no lane of the index: ask again")
        return servicer


def snapshot_loader(storage: Storage) -> SnapshotLoader:
    """Returns a function that loads a fold's snapshot from the table's folder, by path and SHA-256.

    It raises CorruptFileError when the file's content does not have that SHA-256.
    """

    def load(path: str, sha256: str) -> bytes:
        content: bytes = storage.read(path)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise CorruptFileError(f"{path} does not have the content that the decisions name ({sha256})")
        return content

    return load


def check_topics(config: TableConfigFile, admin: Admin, storage: Storage) -> dict[str, int]:
    """Returns the number of partitions of each of Tidemark's own topics.

    Raises SetupError when a topic is missing, or its number of partitions is not the recorded one;
    CorruptFileError when the record itself is damaged.

    Input topics are not checked here: the coordinator grants lanes only of those that can be read.
    """
    try:
        recorded = read_document(storage, TOPICS_RECORD, dict[str, int])
    except FileMissingError:
        recorded = {}
    expected = {spec.name: spec.partitions for spec in topic_specs(config)} | recorded
    counts: dict[str, int] = {}
    for topic in [spec.name for spec in topic_specs(config)]:
        partitions = admin.partitions(topic)
        if partitions is None:
            raise SetupError(
                f"topic {topic} does not exist: start the coordinator, which creates a table's topics, or "
                "correct kafka.bootstrap.servers"
            )
        if partitions != expected[topic]:
            raise SetupError(
                f"topic {topic} has {partitions} partitions, but the table was set up with "
                f"{expected[topic]}, and its lanes and positions depend on that number. Check whether "
                "table.index.lanes was changed in this configuration. If the topic's content is lost, start "
                "anew with new topics (`tidemark table adopt --new-ledger`)"
            )
        counts[topic] = partitions
    return counts
