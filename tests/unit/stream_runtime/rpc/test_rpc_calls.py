"""What every call of a server of ours has: a request id, a deadline, errors with details. On loopback."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from testing.clock import ManualClock
from tidemark.config import Address
from tidemark.config.log_format import LogFormat
from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import DeadlineExceededError, StreamRuntimeError
from tidemark.stream_runtime.logging import bound, configure_logging
from tidemark.stream_runtime.rpc.channel import open_channel
from tidemark.stream_runtime.rpc.errors import (
    StatusError,
    decode_details,
    encode_details,
    from_grpc,
    reason_of,
)
from tidemark.stream_runtime.rpc.interceptors import (
    Deadlines,
    current_request_id,
    is_wanted,
    left_s,
    sent_request_id,
)
from tidemark.stream_runtime.rpc.server import start_server

WAIT_S = 60.0


class TooManyError(StatusError):
    kind = ErrorKind.RETRYABLE
    status = grpc.StatusCode.RESOURCE_EXHAUSTED
    retry_after_s = 2.5


class NoSuchThingError(StatusError):
    status = grpc.StatusCode.NOT_FOUND
    error_reason = "THING_UNKNOWN"
    error_metadata: ClassVar = {"thing": 7}
    resource = ("thing", "7")


class WrongFieldError(StreamRuntimeError):
    violations: ClassVar = [("keys", "too many"), ("table", "no such table")]


class LongError(StreamRuntimeError):
    kind = ErrorKind.CONFLICT
    error_metadata: ClassVar = {"much": "x" * 5_000}


ERRORS: dict[bytes, Exception] = {
    b"many": TooManyError("slowly"),
    b"thing": NoSuchThingError("there is no thing 7"),
    b"field": WrongFieldError("two fields are wrong"),
    b"long": LongError("ü" * 3_000),
    b"late": DeadlineExceededError("not in time"),
    b"secret": StreamRuntimeError("cannot log in with password=hunter2 there"),
    b"defect": KeyError("password=hunter2"),
}


class Echo:
    """Answers with what the call knows of itself."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()

    def once(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if request in ERRORS:
            raise ERRORS[request]
        if request == b"wait":
            self.begun.set()
            while is_wanted():
                context.time_remaining()
            self.cancelled.set()
            raise DeadlineExceededError("nobody waits any more")
        return json.dumps({"id": current_request_id(), "left_s": left_s(1_000.0)}).encode()

    def stream(self, request: bytes, context: grpc.ServicerContext):
        for _ in range(2):
            yield self.once(request, context)

    def both(self, requests: Iterator[bytes], context: grpc.ServicerContext):
        for request in requests:
            yield self.once(request, context)


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def address(echo):
    def register(server: grpc.Server) -> None:
        handlers: dict[str, Any] = {
            "Once": grpc.unary_unary_rpc_method_handler(echo.once),
            "Stream": grpc.unary_stream_rpc_method_handler(echo.stream),
            "Both": grpc.stream_stream_rpc_method_handler(echo.both),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))

    server = start_server(Address("127.0.0.1", 0), [("test.Echo", register)])
    yield server.address
    server.stop(0.1)


@pytest.fixture
def channel(address):
    with grpc.insecure_channel(str(address)) as channel:
        yield channel


def ask(channel, request=b"x", *, metadata=(), timeout=WAIT_S):
    """(answer, trailing metadata as a dictionary)."""
    answer, called = channel.unary_unary("/test.Echo/Once").with_call(
        request, metadata=metadata, timeout=timeout
    )
    return json.loads(answer), dict(called.trailing_metadata())


def fail(channel, request, **how) -> Any:
    with pytest.raises(grpc.RpcError) as failed:
        ask(channel, request, **how)
    return failed.value


def details_of(error) -> dict[str, Any]:
    """By type; what any gRPC client would unpack."""
    status = rpc_status.from_call(error)
    assert status is not None
    found = {}
    for detail in status.details:
        name = detail.type_url.rpartition(".")[2]
        found[name] = getattr(error_details_pb2, name)()
        assert detail.Unpack(found[name])
    return found


# -- request ids


def test_id_of_the_caller_is_known_to_the_handler_and_comes_back(channel):
    answer, trailing = ask(channel, metadata=[("x-request-id", "abc-1.2:3")])
    assert answer["id"] == trailing["x-request-id"] == "abc-1.2:3"


@pytest.mark.parametrize("sent", [[], [("x-request-id", "a b")], [("x-request-id", "x" * 129)]])
def test_call_without_a_usable_id_gets_a_new_one_each_time(channel, sent):
    answers = [ask(channel, metadata=sent) for _ in range(2)]
    ids = {answer["id"] for answer, _ in answers} | {trailing["x-request-id"] for _, trailing in answers}
    assert len(ids) == 2
    assert all(len(each) == 36 for each in ids)


def test_stream_has_one_id_from_beginning_to_end(channel):
    method: Any = channel.unary_stream("/test.Echo/Stream")
    called = method(b"x", metadata=[("x-request-id", "s-1")], timeout=WAIT_S)
    assert [json.loads(answer)["id"] for answer in called] == ["s-1", "s-1"]
    assert dict(called.trailing_metadata())["x-request-id"] == "s-1"


def test_our_client_names_a_stream_of_both_sides_and_sets_its_deadline(address):
    # The server's own limit is longer. gRPC rounds such a deadline up to a tenth of a second.
    deadline_s, step_s = WAIT_S / 2, 0.1
    with open_channel(address, deadline_s=deadline_s) as channel:
        both: Any = channel.stream_stream("/test.Echo/Both")
        answers = [json.loads(answer) for answer in both(iter([b"x", b"y"]))]
    assert len({answer["id"] for answer in answers}) == 1
    assert len(answers[0]["id"]) == 36
    assert 0.0 < answers[1]["left_s"] <= answers[0]["left_s"] <= deadline_s + step_s


@pytest.fixture
def lines():
    """What is logged, as JSON; the log is left as it was."""
    root, written = logging.getLogger("tidemark"), io.StringIO()
    before = (root.handlers, root.level, root.propagate)
    configure_logging("test", LogFormat.JSON, stream=written)
    yield written
    root.handlers, root.level, root.propagate = before


def test_failed_call_is_found_in_the_log_by_its_id(channel, lines):
    error = fail(channel, b"thing", metadata=[("x-request-id", "find-me")])
    assert details_of(error)["RequestInfo"].request_id == "find-me"
    assert dict(error.trailing_metadata())["x-request-id"] == "find-me"
    logged = [json.loads(line) for line in lines.getvalue().splitlines()]
    (line,) = [each for each in logged if each.get("request_id") == "find-me"]
    assert line["message"] == "/test.Echo/Once: NOT_FOUND THING_UNKNOWN: there is no thing 7"


def test_id_is_gone_when_the_call_is_over(channel):
    ask(channel)
    assert current_request_id() is None
    with bound():
        assert sent_request_id(None) is None


# -- deadlines


def test_handler_sees_the_time_that_the_caller_leaves_it(channel):
    answer, _ = ask(channel, timeout=20.0)
    assert 0 < answer["left_s"] < 25.0


def test_method_has_a_limit_of_the_server_where_the_caller_names_none(channel):
    answer, _ = ask(channel, timeout=None)
    assert 0 < answer["left_s"] < 65.0


def test_handler_learns_that_nobody_waits_any_more(channel, echo):
    called = channel.unary_unary("/test.Echo/Once").future(b"wait", timeout=WAIT_S)
    assert echo.begun.wait(WAIT_S)
    called.cancel()
    assert echo.cancelled.wait(WAIT_S)


class Context:
    """As far as `Deadlines` asks."""

    def __init__(self, remaining_s: float | None) -> None:
        self._remaining_s = remaining_s

    def time_remaining(self) -> float | None:
        return self._remaining_s

    def is_active(self) -> bool:
        return True


def test_limit_of_the_method_counts_where_the_callers_deadline_is_later():
    clock = ManualClock()
    deadlines = Deadlines(clock, {"/s/Slow": 100.0})

    def handler(request: float, _: object) -> list[float | bool]:
        clock.sleep(request)
        return [left_s(1_000.0), is_wanted()]

    def ask_for(method: str, remaining_s: float | None, takes_s: float) -> Any:
        return deadlines.around(method, handler, takes_s, Context(remaining_s))

    assert ask_for("/s/Slow", None, 30.0) == [70.0, True]
    assert ask_for("/s/Slow", 5_000.0, 30.0) == [70.0, True]
    assert ask_for("/s/Slow", 40.0, 30.0) == [10.0, True]
    assert ask_for("/s/Other", None, 61.0) == [0.0, False]


def test_call_whose_time_was_over_before_its_turn_is_not_begun():
    begun = []
    with pytest.raises(DeadlineExceededError, match="/s/Slow was not begun"):
        Deadlines(ManualClock(), {}).around("/s/Slow", lambda *_: begun.append(1), None, Context(-0.1))
    assert begun == []


def test_outside_of_a_call_there_is_no_limit():
    assert (left_s(5.0), is_wanted()) == (5.0, True)


# -- details of errors


def test_reason_is_the_errors_own_or_its_class():
    class HTTPThingError(Exception):
        pass

    assert reason_of(NoSuchThingError("")) == "THING_UNKNOWN"
    assert reason_of(HTTPThingError()) == "HTTP_THING"
    assert reason_of(KeyError("x")) == "KEY"


def test_what_is_not_there_is_named(channel):
    error = fail(channel, b"thing")
    found = details_of(error)
    assert error.code() is grpc.StatusCode.NOT_FOUND
    info = found["ErrorInfo"]
    assert (info.reason, info.domain, dict(info.metadata)) == ("THING_UNKNOWN", "tidemark", {"thing": "7"})
    assert (found["ResourceInfo"].resource_type, found["ResourceInfo"].resource_name) == ("thing", "7")
    assert "RetryInfo" not in found


def test_wrong_fields_are_named(channel):
    error = fail(channel, b"field")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    wrong = details_of(error)["BadRequest"].field_violations
    assert [(each.field, each.description) for each in wrong] == [
        ("keys", "too many"),
        ("table", "no such table"),
    ]
    assert from_grpc("m", error).info.violations == (("keys", "too many"), ("table", "no such table"))


def test_too_many_calls_may_be_tried_again_after_a_while(channel):
    error = from_grpc("m", fail(channel, b"many"))
    assert error.status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (error.kind, error.info.retry_after_s, error.info.reason) == (
        ErrorKind.RETRYABLE,
        2.5,
        "TOO_MANY",
    )


def test_wait_that_ended_is_deadline_exceeded_and_may_be_tried_again(channel):
    error = from_grpc("m", fail(channel, b"late"))
    assert (error.status, error.kind) == (grpc.StatusCode.DEADLINE_EXCEEDED, ErrorKind.RETRYABLE)
    assert error.info.retry_after_s == 1.0


def test_error_that_is_too_long_for_metadata_keeps_status_reason_and_id(channel):
    error = fail(channel, b"long", metadata=[("x-request-id", "long-1")])
    assert error.code() is grpc.StatusCode.ABORTED
    assert error.details() == "ü" * 600
    info = from_grpc("m", error).info
    assert (info.reason, info.request_id, info.metadata) == ("LONG", "long-1", {})


@pytest.mark.parametrize("request_", [b"secret", b"defect"])
def test_secret_in_an_error_reaches_no_client(channel, request_):
    error = fail(channel, request_)
    assert "hunter2" not in error.details()
    assert b"hunter2" not in rpc_status.from_call(error).SerializeToString()


def test_details_of_a_server_that_sends_none_are_empty():
    class Bare:
        def trailing_metadata(self):
            return ()

        def code(self):
            return grpc.StatusCode.UNAVAILABLE

        def details(self):
            return "gone"

    class Contradicting(Bare):
        def trailing_metadata(self):
            return (("grpc-status-details-bin", encode_details(TooManyError("x"), 8, "x", None)),)

    class Broken(Bare):
        def trailing_metadata(self):
            return (("grpc-status-details-bin", b"\xff\xff"),)

    for call in (Bare(), Contradicting(), Broken(), object()):
        assert decode_details(call).reason == ""
