"""Thousands of connections: a server keeps those of callers, and strangers keep no newcomer out.

No bound here is one of speed: a newcomer asks again until it is served, on a slow machine more often.
"""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.unit.stream_runtime.rpc_world import PREFACE, RENEW, SERVICE, STATUS, World, until
from tests.unit.stream_runtime.serving_process import serving_process
from tests.unit.stream_runtime.strangers import strangers
from tidemark.errors import ErrorKind
from tidemark.stream_runtime.rpc import connections, server
from tidemark.stream_runtime.rpc.connections import Bounds, Connection, bounds, peer_of, superfluous
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_runtime.rpc.health import is_serving

STRANGERS = 2_000


def seen(*peers: str) -> dict[int, Connection]:
    return {key: Connection(100 + key, peer) for key, peer in enumerate(peers)}


@pytest.mark.parametrize(
    ("before", "used", "busy", "kept", "closed"),
    [
        pytest.param({0, 1, 2, 3, 4}, {}, {}, 5, [], id="as many as there may be"),
        pytest.param({0, 1, 2, 3, 4}, {}, {}, 3, [0, 1], id="who waits longest"),
        pytest.param({0, 1, 2, 3, 4}, {"a": 7}, {}, 3, [1, 2], id="not who has called"),
        pytest.param({0, 1, 2, 3, 4}, {}, {"a"}, 3, [1, 2], id="not who calls"),
        pytest.param({0}, {}, {}, 3, [0], id="not whom the last look did not see"),
        pytest.param({0, 1}, {"a": 7}, {}, 3, [1], id="newcomers cost no caller its connection"),
        pytest.param(
            {0, 1, 2, 3, 4}, {"a": 7, "b": 5, "c": 9, "d": 8, "e": 6}, {}, 3, [1, 4], id="oldest calls"
        ),
        pytest.param({0, 1, 2, 3, 4}, {"a": 7, "b": 5, "c": 9}, {"b"}, 2, [3, 4, 0], id="callers above it"),
        pytest.param({0, 1, 2, 3, 4}, {}, set("abcde"), 1, [], id="nobody who calls"),
    ],
)
def test_closed_are_first_those_without_calls(before, used, busy, kept, closed) -> None:
    assert superfluous(seen(*"abcde"), before, used, busy, kept) == closed


def test_a_peer_has_one_name() -> None:
    assert peer_of("[::1]", "80") == peer_of("::1", 80) == "::1 80"
    assert peer_of("::ffff:10.0.0.1", 80) == peer_of("10.0.0.1", "80") == "10.0.0.1 80"
    assert peer_of("fe80::1%eth0", 80) == "fe80::1 80"


@pytest.mark.parametrize(
    ("soft", "kept"), [(1_024, 128), (256, 32), (4, 1), (20_000, 1_024), (resource.RLIM_INFINITY, 1_024)]
)
def test_connections_take_a_quarter_of_the_files_at_most(
    soft: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))
    assert bounds() == Bounds(kept, 2 * kept)


def answered(world: World) -> bool:
    """Whether a service that comes anew is answered; one that is told to come again has not been."""
    try:
        return bool(world.ask(RENEW, SERVICE) == b"xx")
    except RpcError as error:
        if error.kind is not ErrorKind.RETRYABLE:
            raise
        return False


@pytest.mark.parametrize(
    ("tokens", "said"),
    [(True, PREFACE), (False, PREFACE), (True, b"")],
    ids=["tokens-greeting", "open-greeting", "tokens-silent"],
)
def test_newcomers_are_served_while_thousands_of_strangers_connect_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: bool, said: bytes
) -> None:
    # A connection without a call is closed after a minute; strangers may take longer on a slow machine.
    monkeypatch.setattr(server, "_IDLE_MS", 3_600_000)
    made = World(tmp_path, tokens=tokens)
    metadata = [("authorization", f"Bearer {SERVICE}")]
    states: list[grpc.ChannelConnectivity] = []
    with made.ends, grpc.insecure_channel(str(made.server.address)) as channel:
        renew: Any = channel.unary_unary(RENEW)
        assert renew(b"x", metadata=metadata, timeout=60) == b"xx"
        channel.subscribe(states.append)
        with strangers(made.server.address, STRANGERS, said):
            closed = made.refused["too_slow"]
            # More than once round: none of those who were there first is there any more.
            until(lambda: made.refused["too_slow"] > closed + STRANGERS)
            for _ in range(5):
                until(lambda: answered(made))
                until(lambda: is_serving(made.server.address, 60.0))
            # Who has called before keeps its connection.
            assert renew(b"x", metadata=metadata, timeout=60) == b"xx"
            assert set(states) <= {grpc.ChannelConnectivity.READY}


def test_connections_have_a_bound_in_memory_and_files_that_holds_with_1024_files(tmp_path: Path) -> None:
    """Strangers who stay, where a process may have few files: most are closed: others have room."""
    with serving_process(tmp_path, tokens=False, open_files=1_024) as serving, ExitStack() as sockets:
        until(lambda: is_serving(serving.rpc, 5.0))
        before, files = serving.peak_bytes(), serving.open_files()
        for _ in range(STRANGERS):
            held = socket.create_connection(serving.rpc, 60)
            sockets.enter_context(held).sendall(PREFACE)
        for _ in range(10):
            until(lambda: is_serving(serving.rpc, 5.0))
        assert serving.open_files() <= files + 256 + 20
        assert serving.peak_bytes() - before < 32 << 20


@pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "open"])
def test_thousands_of_connections_take_bounded_memory_and_files(tmp_path: Path, tokens: bool) -> None:
    with serving_process(tmp_path, tokens=tokens) as serving:
        until(lambda: is_serving(serving.rpc, 5.0))
        before, files = serving.peak_bytes(), serving.open_files()
        with strangers(serving.rpc, STRANGERS, PREFACE):
            for _ in range(10):
                until(lambda: is_serving(serving.rpc, 5.0))
                assert serving.open_files() <= files + 2 * connections.KEPT_MAX + 20
                time.sleep(0.3)
        assert serving.peak_bytes() - before < 256 << 20


def test_callers_who_hold_many_connections_keep_no_newcomer_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the open everybody calls: then the connections go whose last call is longest ago."""
    monkeypatch.setattr(server, "_IDLE_MS", 3_600_000)
    monkeypatch.setattr(connections, "KEPT_MAX", 10)
    monkeypatch.setattr(connections, "LOOK_EVERY_S", 0.2)
    made = World(tmp_path, tokens=False)
    with made.ends, ExitStack() as ends:
        for _ in range(60):
            own = [("grpc.use_local_subchannel_pool", 1)]
            channel = ends.enter_context(grpc.insecure_channel(str(made.server.address), options=own))
            status: Any = channel.unary_unary(STATUS)
            status(b"x", timeout=60, wait_for_ready=True)
        until(lambda: answered(made))
