"""Files are published side by side, never more than a bounded number of them, and no error is lost."""

from __future__ import annotations

import threading

import pytest

from tidemark.stream_writer.publishing import Publishers


def test_files_wait_side_by_side_and_their_number_is_bounded() -> None:
    gate, running = threading.Event(), threading.Semaphore(0)

    def publish(number: int) -> int:
        running.release()
        assert gate.wait(60)
        return number

    with Publishers() as publishers:
        begun = [publishers.submit(publish, number) for number in range(16)]
        assert all(running.acquire(timeout=60) for _ in range(8)), "eight at a time"
        assert not running.acquire(timeout=0.05)
        late = threading.Thread(target=lambda: begun.append(publishers.submit(publish, 16)))
        late.start()
        late.join(0.05)
        assert late.is_alive(), "the seventeenth waits for the first"
        gate.set()
        late.join(60)
    assert [each.result() for each in begun] == list(range(17))


def test_an_error_ends_the_task_and_what_has_not_begun() -> None:
    published: list[int] = []
    gate = threading.Event()

    def publish(number: int) -> None:
        if number == 0:
            raise OSError("disk full")
        assert gate.wait(60)
        published.append(number)

    def task() -> None:
        with Publishers() as publishers:
            for number in range(30):
                publishers.submit(publish, number)

    threading.Timer(0.2, gate.set).start()
    with pytest.raises(OSError, match="disk full"):
        task()
    assert len(published) < 16
