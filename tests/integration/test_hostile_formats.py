"""Avro, Protobuf and Debezium from a producer that writes what it likes, with a schema registry that answers
what it likes, to running tables: no record and no schema stops one of them.

Most records are of one seed, the same in each run, the last fourth of one that changes with
the commit, which is printed.
`TIDEMARK_HOSTILE_SEED` replays that, `TIDEMARK_HOSTILE_FORMAT_RECORDS` sets how many bad records a table
gets.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests import hostile_protobuf
from tests.commit_seed import seed_of_run
from tests.hostile_avro import Made, framed, head, reasons
from tests.hostile_formats import AVRO_KEYS, FORMATS, SCHEMA, Hostile, hostile
from tests.interop.verdict import hudi_rs_snapshot
from tests.pipeline import Pipeline
from tests.raw_producer import Codec, RawProducer, RawRecord, RefusedBatchError, batch
from tests.schema_registry import RegistryServer
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS: Final = int(os.environ.get("TIDEMARK_HOSTILE_FORMAT_RECORDS", "400"))
BATCH: Final = 50
SEED: Final = 7
_UNUSABLE: Final = reasons("unknown-schema")
FLUSH_MS: Final = 900_000
_SLOW_S: Final = 3.0
_CHAIN: Final = 120


def _slow() -> tuple[int, bytes]:
    time.sleep(_SLOW_S)
    return 200, b'{"schema": "\\"string\\""}'


ODD_ANSWERS: Final[dict[str, Callable[[], tuple[int, bytes]]]] = {
    "answer of a broken registry": lambda: (500, b'{"error_code": 50001, "message": "no"}'),
    "answer that is no JSON": lambda: (200, b"<html>"),
    "answer that is no schema": lambda: (200, b'{"schema": 5, "schemaType": []}'),
    "answer of 9 MiB": lambda: (200, b'{"schema": "' + b"x" * (9 << 20) + b'"}'),
    "slow answer": _slow,
    "empty answer": lambda: (200, b""),
}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def odd_kinds(registry: RegistryServer) -> dict[str, Callable[[Random], Made]]:
    """Kinds of records whose schemas this registry answers oddly for."""
    kinds = {}
    for number, (kind, answer) in enumerate(ODD_ANSWERS.items(), 9_000):
        registry.odd[f"/schemas/ids/{number}"] = answer
        kinds[kind] = _of_schema(number)
    for at in range(_CHAIN):
        below = [{"name": "x", "subject": f"chain-{at + 1}", "version": 1}]
        registry.register(f"chain-{at}", f'{{"type": "fixed", "name": "c{at}", "size": 1}}', "AVRO", below)
    registry.put(9_900, '"string"', "AVRO", [{"name": "x", "subject": "chain-0", "version": 1}])
    kinds["schema with more than 100 references"] = _of_schema(9_900)
    itself = [{"name": "x", "subject": "itself", "version": 1}]
    registry.register("itself", '"string"', "AVRO", itself)
    registry.put(9_901, '"string"', "AVRO", itself)
    kinds["schema that references itself"] = _of_schema(9_901, reasons("incompatible-schema"))
    lacking = [{"name": "x", "subject": "nobody", "version": 1}]
    registry.put(9_902, '"string"', "AVRO", lacking)
    kinds["schema that references nothing"] = _of_schema(9_902)
    return kinds


def _of_schema(number: int, become: frozenset[str] = _UNUSABLE) -> Callable[[Random], Made]:
    return lambda _: (framed(number, head("x")), become)


def kinds_of(name: str, made: Hostile, registry: RegistryServer) -> dict[str, Callable[[Random], Made]]:
    """Their schemas are in the registry afterwards."""
    kinds = {kind: each for kind, each in made.kinds.items() if "references" not in kind}
    for number, stored in made.schemas.items():
        registry.put(number, stored.text, stored.kind)
    return kinds | odd_kinds(registry) if name == "avro" else kinds


def settings_of(name: str, registry: RegistryServer, folder: Path) -> dict[str, Any]:
    """Of `input`."""
    settings: dict[str, Any] = {"format": name}
    if name in AVRO_KEYS:
        settings["schema_registry"] = {"url": registry.url, "timeout": "1s"}
    if name == "protobuf":
        file = folder / "rows.desc"
        hostile_protobuf.write_descriptor(file)
        protobuf = {"descriptor": str(file), "message": hostile_protobuf.MESSAGE}
        settings |= {"protobuf": protobuf, "framing": "confluent"}
    if name.startswith("debezium"):
        settings["debezium"] = {"ordering": "source.lsn"}
    return settings


def send(raw: RawProducer, topic: str, content: bytes) -> int:
    """As soon as the partition has its leader."""
    deadline = time.monotonic() + 60.0
    while True:
        try:
            return raw.send(topic, 0, content)
        except RefusedBatchError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def followed_by_good(
    values: list[bytes], keys: list[str], step: int, sound: Callable[[str], bytes]
) -> tuple[list[RawRecord], list[int]]:
    """(records, places of the values): behind every `step` values a good record with the last one's key."""
    records, places = list[RawRecord](), list[int]()
    for at, (value, key) in enumerate(zip(values, keys, strict=True), 1):
        places.append(len(records))
        records.append(RawRecord(value))
        if at % step == 0:
            records.append(RawRecord(sound(key)))
    return records, places


@pytest.mark.parametrize("name", FORMATS)
def test_bad_records_go_to_the_dead_letters_and_the_good_ones_are_committed(
    name: str,
    kafka: EmbeddedKafka,
    registry: RegistryServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed = seed_of_run("TIDEMARK_HOSTILE_SEED", name)
    fixed, drawn = Random(SEED), Random(seed)
    made = hostile(name)
    sys.stdout.write(f"{name}: seeds {SEED} and {seed}\n")
    kinds = kinds_of(name, made, registry)
    table = {"name": f"hostile-{name}", "record_key": ["id"], "partition": ["region"], "ordering": "at"}
    pipeline = Pipeline(
        tmp_path,
        kafka.bootstrap_servers,
        table,
        SCHEMA,
        input_partitions=1,
        input_settings={"max.message.bytes": str(64 << 20), "retention.ms": "-1"},
        spark=False,
        input=settings_of(name, registry, tmp_path),
    )
    sent: dict[int, tuple[str, frozenset[str]]] = {}
    good = set[str]()
    with pipeline, RawProducer(kafka.bootstrap_servers) as raw:
        pipeline.start()
        mixed = [kind for _, kind in zip(range(RECORDS), _cycled(list(kinds)), strict=False)]
        fixed.shuffle(mixed)
        for number, first in enumerate(range(0, RECORDS, BATCH)):
            batch_kinds = mixed[first : first + BATCH]
            random = fixed if 4 * first < 3 * RECORDS else drawn
            values = [kinds[kind](random) for kind in batch_kinds]
            step = 1 if number % 2 == 0 else len(values)
            keys = [f"good-{first + at}" for at in range(1, len(values) + 1)]
            records, places = followed_by_good([value for value, _ in values], keys, step, made.sound)
            good.update(keys[step - 1 :: step])
            base = send(raw, pipeline.topic, batch(records, list(Codec)[number % len(Codec)]))
            for at, kind, (_, become) in zip(places, batch_kinds, values, strict=True):
                sent[base + at] = kind, become
        pipeline.flush(FLUSH_MS)
        rows = Counter(each["id"] for each in hudi_rs_snapshot(pipeline.table))
        letters = {each.offset: each.reason for each in pipeline.dead_letters()}
        stopped = pipeline.status()["stopped_lanes"]
    assert good <= rows.keys()
    assert not stopped
    wrong = [
        (offset, kind, letters.get(offset))
        for offset, (kind, become) in sent.items()
        if letters.get(offset, "") not in become
    ]
    assert not wrong, f"seeds {SEED} and {seed}: {len(wrong)} records came to something else: {wrong[:10]}"
    assert letters.keys() <= sent.keys()
    assert len(letters) > RECORDS // 2
    with capsys.disabled():
        sys.stderr.write(
            f"\n{name}: {RECORDS} records of {len(kinds)} kinds (seeds {SEED} and {seed}), "
            f"{len(letters)} dead letters: {dict(Counter(letters.values()))}\n"
        )


def _cycled(kinds: list[str]) -> Iterator[str]:
    while True:
        yield from kinds
