"""The admin service's calls about verification: run one and tell its progress; tell the last results."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.admin.messages import verification_message
from tidemark.commit_coordinator.refusals import StoppingError
from tidemark.commit_coordinator.verification.rounds import PeriodicVerification
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.rpc.interceptors import is_wanted

_LOOK_EVERY_S: Final = 0.5
_TELL_EVERY_S: Final = 5.0
_log = logging.getLogger("tidemark.admin")


class VerifyCalls:
    """The handlers, without gRPC."""

    def __init__(self, verification: PeriodicVerification, clock: Clock) -> None:
        self._verification = verification
        self._clock = clock

    def verify(self, full: bool) -> Iterator[pb.VerifyResponse]:
        """Runs a verification: yields progress when it changes, at least every few seconds, then the result.

        Raises StoppingError when the coordinator stops, DeadlineExceededError when the caller has given up;
        the verification goes on then.
        """
        began_s = self._clock.monotonic_s()
        asked = self._verification.ask(full)
        _log.info("the table is verified %s, as asked", "in full" if full else "as far as it changed")
        told, told_s = None, began_s
        while not asked.done.wait(_LOOK_EVERY_S):
            now_s = self._clock.monotonic_s()
            doing = self._verification.doing() if asked.begun.is_set() else "waits for its turn"
            if doing != told or now_s - told_s >= _TELL_EVERY_S:
                told, told_s = doing, now_s
                elapsed_ms = int((now_s - began_s) * 1000)
                progress = pb.VerifyResponse.Progress(elapsed_ms=elapsed_ms, doing=doing)
                yield pb.VerifyResponse(progress=progress)
            if not is_wanted():
                raise DeadlineExceededError("the verification goes on: LastVerification has its result")
        if asked.verdict is None:
            raise StoppingError("the coordinator stops: the verification was ended before it was done")
        yield pb.VerifyResponse(result=verification_message(asked.verdict))

    def last(self) -> pb.LastVerificationResponse:
        """The last result, and how far the table is verified without a difference."""
        last, standing = self._verification.last, self._verification.standing()
        agreed = standing.verified
        return pb.LastVerificationResponse(
            last=None if last is None else verification_message(last),
            agreed_as_of=(agreed.as_of or "") if agreed else "",
            agreed_epoch=(agreed.epoch or 0) if agreed else 0,
            is_running=standing.running,
            every_commits=standing.every_commits,
            commits_since=standing.commits_since,
        )
