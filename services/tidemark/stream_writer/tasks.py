"""The work of a Spark task: reads the ranges that the epoch names, makes the files, and lists them; or makes
one log file of an index that follows from all files.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import msgspec

from tidemark.epoch_protocol.entries import Topic
from tidemark.hudi_format.file_group.kept_tables import KeptTables
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.publication.locate import attempt_of
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline.avro_records import WriteStat
from tidemark.ledger_client.named_batches import NamedBatch, collect_named, covering_range
from tidemark.stream_runtime.kafka.ports import RangeReader, TopicPartition
from tidemark.stream_writer.data_task import DataPartitionWriter
from tidemark.stream_writer.epoch_tasks import EpochTask, PartitionWork, decode_task
from tidemark.stream_writer.errors import TableNotSeenError
from tidemark.stream_writer.group_task import write_group
from tidemark.stream_writer.index_task import write_index_partition
from tidemark.stream_writer.partition_task import packed_partitions
from tidemark.stream_writer.publishing import Publishers
from tidemark.stream_writer.secondary_task import SecondaryEntries
from tidemark.stream_writer.stats_task import FileStats
from tidemark.stream_writer.task_outcome import PartitionEntries, TaskSucceeded
from tidemark.stream_writer.worker_context import Worker


def run_task(data: bytes, worker: Worker) -> TaskSucceeded:
    """Runs one task in a Python worker. A second run takes the files that the first one made visible."""
    task = decode_task(data)
    if not isinstance(task, EpochTask):
        storage = open_storage(task.base_uri)
        if not storage.exists(PROPERTIES_PATH):
            raise TableNotSeenError.at(task.base_uri)
        return write_group(task, attempt_of(storage, task.token))
    storage = open_storage(task.table.base_uri)
    clock = worker.clock
    started_s = clock.monotonic_s()
    read = _read(task, worker.range_reader(task.table.kafka))
    read_s = clock.monotonic_s()
    kept = worker.kept_tables(task.epoch, task.table.secondary_disk)
    written = _write(task, storage, read, kept)
    timings_ms = {
        "task_read": (read_s - started_s) * 1_000,
        "task_write": (clock.monotonic_s() - read_s) * 1_000,
    }
    return msgspec.structs.replace(written, timings_ms=timings_ms)


def _read(task: EpochTask, reader: RangeReader) -> list[tuple[PartitionWork, list[NamedBatch]]]:
    topics = {Topic.DATA: task.table.data_topic, Topic.INDEX: task.table.index_topic}
    wanted = [
        covering_range(TopicPartition(topics[work.topic], work.partition), work.ranges) for work in task.work
    ]
    found = reader.read_many(wanted)
    return [
        (work, collect_named(messages, work.ranges)) for work, messages in zip(task.work, found, strict=True)
    ]


def _write(
    task: EpochTask,
    storage: Storage,
    read: Sequence[tuple[PartitionWork, list[NamedBatch]]],
    kept: KeptTables,
) -> TaskSucceeded:
    view = TableView.load(storage)
    stats: list[Future[tuple[WriteStat, Ticket]]] = []
    logs: list[Future[MetadataLogFile]] = []
    partitions: list[PartitionEntries] = []
    if not view.timeline.instants and not storage.exists(PROPERTIES_PATH):
        # Without this check the attempt would look void, because its folder is missing, too.
        raise TableNotSeenError.at(task.table.base_uri)
    attempt, file_stats = attempt_of(storage, task.staging_dir), FileStats(task.stats_columns)
    entries = SecondaryEntries(task.secondary)
    with Publishers() as publishers:
        for work, batches in read:
            if work.topic is Topic.DATA:
                writer = DataPartitionWriter(
                    task, attempt, view, publishers, work.partition, file_stats, entries, kept
                )
                stats += writer.write(batches)
            elif task.is_partitioned:
                partitions += packed_partitions(batches)
            else:
                logs += write_index_partition(task, attempt, publishers, batches)
        # Before the waits for the disk.
        packed = entries.packed()
        data, metadata_logs = [future.result() for future in stats], [future.result() for future in logs]
    return TaskSucceeded(
        write_stats=tuple(msgspec.json.encode(stat.to_avro()) for stat, _ in data),
        metadata_logs=tuple(metadata_logs),
        tickets=tuple(ticket for _, ticket in data if not ticket.is_visible),
        stats=file_stats.records,
        files_without_stats=file_stats.files_without,
        entries=packed,
        secondary_groups={kept.name: 0 for kept in task.secondary},
        partition_entries=tuple(partitions),
    )
