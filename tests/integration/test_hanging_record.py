"""A record that is decoded for ever, in a running table: by an assigner that has such a defect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.integration.hanging_reader import MARK, MODULE
from tests.integration.hostile_table import Table, check_stopped_and_skipped, hostile_table
from tests.raw_producer import RawRecord, batch
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

FOUND_S: Final = 600.0


@pytest.fixture
def table(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    with hostile_table(kafka, tmp_path_factory.mktemp("hanging"), "hanging") as made:
        yield made


def test_a_record_that_is_decoded_for_ever_stops_its_lane_alone(table: Table) -> None:
    """It ends whoever decodes it, after a limit of time, until it is read apart and named."""
    pipeline = table.pipeline

    def start() -> None:
        pipeline.start_process("assigner", pipeline.file, by=MODULE)

    pipeline.stop("assigner")
    begin = pipeline.log_file("assigner").stat().st_size
    start()
    table.send(0, batch([table.good()]))
    table.assert_whole()
    table.send(0, batch([table.good()]))
    # In the middle of a batch, and behind one that is decoded together with it.
    records = [table.good(), RawRecord(b"{" + MARK), table.good()]
    offset = table.send(0, batch(records)) + 1
    table.send(0, batch([table.good()]))
    deaths, until = 0, time.monotonic() + FOUND_S
    while not table.stopped():
        if pipeline._processes["assigner"].poll() is None:
            assert time.monotonic() < until, pipeline.log("assigner")
            time.sleep(0.2)
            continue
        assert pipeline.exit_code("assigner") == 1, pipeline.log("assigner")
        deaths += 1
        assert deaths <= 4, pipeline.log("assigner")
        start()
    assert deaths >= 2
    with pipeline.log_file("assigner").open("rb") as log:
        log.seek(begin)
        said = log.read().decode(errors="replace")
    # Who ends says where its threads stood, and who reads apart what it was that never ended.
    assert said.count("Timeout (0:00:") == deaths, said
    assert 'hanging_reader.py", line' in said, said
    assert said.count(f"offset {offset} alone said nothing for") >= 2, said
    check_stopped_and_skipped(table, 0, offset, offset, "hangs")
    pipeline.stop("assigner")
    pipeline.start("assigner")
    table.send(0, batch([table.good()]))
    table.assert_whole()
