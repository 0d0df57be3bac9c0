"""The end of a record batch that nobody can read, by asking at other offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.stream_runtime.kafka.confluent.batch_header import BatchOffsets, HeaderUnavailableError
from tidemark.stream_runtime.kafka.confluent.batch_probe import Probe, last_of_batch
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError


@given(
    st.lists(
        st.tuples(st.integers(1, 2_000), st.sampled_from(["bad", "fatal", "good"])), min_size=1, max_size=8
    )
)
def test_the_end_is_that_of_the_batch_that_holds_the_offset(batches: list[tuple[int, str]]) -> None:
    """Neighbours are told apart by where they begin. Where a reader dies nobody knows that, so two of those
    count as one, but good ones between them stay.
    """
    answers: list[Probe] = []
    ends: list[int] = []
    for size, kind in batches:
        base = len(answers)
        answers += [Probe(kind == "good", base if kind == "bad" else -1)] * size
        ends.append(len(answers) - 1)
    asked = 0

    def ask(offset: int) -> Probe:
        nonlocal asked
        asked += 1
        return answers[offset] if offset < len(answers) else Probe(True)

    start = 0
    for (size, kind), end in zip(batches, ends, strict=True):
        for offset in (start, start + size // 2, end):
            asked = 0
            last = last_of_batch(ask, offset, len(answers))
            assert asked <= (26 if kind != "fatal" else len(answers) + 2)
            if kind == "good":
                assert last == offset
            elif kind == "bad":
                assert last == end
            else:
                assert last >= end
                assert all(each == Probe(False) for each in answers[offset : last + 1])
        start = end + 1


def test_a_batch_at_the_end_of_the_partition() -> None:
    assert last_of_batch(lambda offset: Probe(offset < 10, 10), 10, 13) == 12
    assert last_of_batch(lambda offset: Probe(False, 10), 12, 13) == 12
    assert last_of_batch(lambda offset: Probe(offset >= 13), 12, 13) == 12


def test_the_header_tells_the_end_of_a_deadly_batch_with_one_question() -> None:
    asked: list[int] = []

    def ask(offset: int) -> Probe:
        asked.append(offset)
        return Probe(False)

    def header(offset: int) -> BatchOffsets:
        return BatchOffsets(1_000, 100_999)

    assert last_of_batch(ask, 5_000, 200_000, header) == 100_999
    assert asked == [5_000]


@pytest.mark.parametrize("found", [BatchOffsets(0, 9), BatchOffsets(11, 12), None])
def test_without_a_header_of_that_batch_the_offsets_are_asked(found: BatchOffsets | None) -> None:
    def header(_: int) -> BatchOffsets:
        if found is None:
            raise HeaderUnavailableError("the SASL mechanism GSSAPI is not supported")
        return found

    assert last_of_batch(lambda offset: Probe(offset >= 13), 10, 20, header) == 12


def test_where_even_the_end_ends_the_reader_nothing_is_known() -> None:
    with pytest.raises(KafkaUnavailableError, match="so does one that reads at the partition's end"):
        last_of_batch(lambda _: Probe(False), 10, 13)
