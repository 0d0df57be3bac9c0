"""The TCP link of fault tests and kill campaign: passes, holds back, delivers late, ends, refuses."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.chaos.cuts import CUTS
from tests.faults.link import Address, Link, Way


@pytest.fixture
def link() -> Iterator[Link]:
    with echoing() as made:
        yield made


@contextlib.contextmanager
def echoing() -> Iterator[Link]:
    """In front of a server that says everything back."""
    server, is_over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def echo() -> None:
        while not is_over.is_set():
            try:
                connection, _ = server.accept()
            except OSError:
                # A test may use up the descriptors before this thread waits for the first connection.
                time.sleep(0.01)
                continue
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection:
            while content := connection.recv(100):
                connection.sendall(content)

    threading.Thread(target=echo, daemon=True).start()
    made = Link(Address("127.0.0.1", server.getsockname()[1]))
    yield made
    made.close()
    is_over.set()
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def connect(link: Link) -> socket.socket:
    return socket.create_connection(link.address, 60.0)


def says(client: socket.socket, content: bytes) -> bytes:
    client.sendall(content)
    return client.recv(100)


def has_ended(client: socket.socket) -> bool:
    """In order, or by a reset because something was still unread."""
    try:
        return client.recv(100) == b""
    except ConnectionError:
        return True


HOLDS_BACK = [name for name in CUTS if name != "refused"]


@pytest.mark.parametrize("how", HOLDS_BACK)
def test_what_a_black_hole_takes_arrives_when_it_is_healed(link: Link, how: str):
    with connect(link) as client:
        assert says(client, b"one") == b"one"
        CUTS[how](link)
        client.sendall(b"two")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)
        link.heal()
        client.settimeout(60.0)
        assert client.recv(100) == b"two"


def test_new_connection_during_a_black_hole_is_accepted_and_stays_silent(link: Link):
    link.black_hole()
    with connect(link) as client:
        client.sendall(b"one")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)
        link.heal()
        client.settimeout(60.0)
        assert client.recv(100) == b"one"


@pytest.mark.parametrize("how", HOLDS_BACK)
def test_healed_with_a_reset_what_was_held_is_lost_and_new_connections_pass(link: Link, how: str):
    with connect(link) as client:
        assert says(client, b"one") == b"one"
        CUTS[how](link)
        client.sendall(b"two")
        link.heal(reset=True)
        assert has_ended(client)
    with connect(link) as again:
        assert says(again, b"three") == b"three"


def test_cut_ends_connections_and_lets_new_ones_in(link: Link):
    with connect(link) as client:
        assert says(client, b"one") == b"one"
        link.cut()
        assert has_ended(client)
    with connect(link) as again:
        assert says(again, b"two") == b"two"


def test_refused_ends_old_and_new_connections_until_it_is_healed(link: Link):
    with connect(link) as client:
        assert says(client, b"one") == b"one"
        CUTS["refused"](link)
        assert has_ended(client)
    with connect(link) as refused:
        assert has_ended(refused)
    link.heal()
    with connect(link) as again:
        assert says(again, b"two") == b"two"


def test_upstream_that_is_not_there_or_not_known_ends_the_connection():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = Address("127.0.0.1", gone.getsockname()[1])
    for upstream in (address, None):
        link = Link(upstream)
        with connect(link) as client:
            assert has_ended(client)
        link.close()


def test_connections_stay_with_the_upstream_that_they_began_with(link: Link):
    with connect(link) as client:
        assert says(client, b"one") == b"one"
        link.upstream = None
        assert says(client, b"two") == b"two"
        with connect(link) as other:
            assert has_ended(other)


def test_conversation_that_fails_ends_its_connection_and_close_says_why():
    class Broken:
        def read(self, source: socket.socket) -> bytes | None:
            return source.recv(100) or None

        def pass_on(self, way: Way, unit: bytes) -> bytes | None:
            raise KeyError("no such request")

    with socket.create_server(("127.0.0.1", 0)) as server:
        link = Link(Address("127.0.0.1", server.getsockname()[1]), lambda _: Broken())
        for _ in range(2):
            with connect(link) as client:
                client.sendall(b"one")
                assert has_ended(client)
        with pytest.raises(BaseExceptionGroup) as raised:
            link.close()
    assert [type(error) for error in raised.value.exceptions] == [KeyError, KeyError]


def test_without_file_descriptors_it_goes_on_later_and_close_says_why():
    """In a process of its own. In this one the numbers belong to everybody: an earlier test's thread that
    closes its connection late gives some back, both sides of the link get theirs, and nothing fails.
    """
    code = "from tests.unit.faults.test_link import run_out_of_descriptors; run_out_of_descriptors()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def run_out_of_descriptors() -> None:
    with echoing() as link:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        held = [socket.socket(), socket.socket()]
        # The numbers that are free below the limit are used up: neither side of the link gets one more.
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1].fileno() + 1, limits[1]))
        try:
            with contextlib.suppress(OSError):
                while True:
                    held.append(socket.socket())
            held[0].connect(link.address)
            deadline = time.monotonic() + 60.0
            while not link.failures:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for each in held:
                each.close()
        with connect(link) as client:
            assert says(client, b"one") == b"one"
        with pytest.raises(BaseExceptionGroup, match="on threads of the link") as raised:
            link.close()
        errors = {error.errno for error in raised.value.exceptions if isinstance(error, OSError)}
        assert errors == {errno.EMFILE}
        link.failures.clear()
