"""Every call of the admin service, asked by a client that knows only what reflection tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.integration.foreign_clients import Answer, ForeignClient
from tests.pipeline import Pipeline

ADMIN: Final = "tidemark.admin.v1.Admin"
COMMIT: Final = "tidemark.commit.v1.CommitCoordinator"
INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, FAILED_PRECONDITION = 3, 4, 5, 9


class AdminCalls:
    """Asks, and remembers which methods were asked."""

    def __init__(self, client: ForeignClient, table: str) -> None:
        self._client = client
        self._table = table
        self.asked: set[str] = set()

    def ask(self, method: str, request: Mapping[str, Any] | None = None, **how: Any) -> Answer:
        self.asked.add(method)
        return self._client.ask(f"{ADMIN}/{method}", {"table": self._table, **(request or {})}, **how)

    def ok(self, method: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The last message of the answer."""
        answer = self.ask(method, request)
        assert answer.code == 0, (method, answer)
        return answer.messages[-1]

    def refused(self, code: int, reason: str, method: str, request: Mapping[str, Any]) -> Answer:
        answer = self.ask(method, request, request_id=f"why-{method}")
        info = answer.details["ErrorInfo"]
        assert (answer.code, info["reason"], info["domain"]) == (code, reason, "tidemark")
        assert answer.details["RequestInfo"]["requestId"] == f"why-{method}"
        return answer


def check_discovery(client: ForeignClient) -> set[str]:
    """Reflection names what there is, health tells each; returns the admin service's methods."""
    assert {ADMIN, COMMIT, "grpc.health.v1.Health"} <= client.services()
    answer = client.ask("grpc.health.v1.Health/Check", {})
    assert (answer.code, answer.messages) == (0, [{"status": "SERVING"}])
    listed = client.ask("grpc.health.v1.Health/List", {})
    serving = {"status": "SERVING"}
    assert (listed.code, listed.messages) == (
        0,
        [{"statuses": {"": serving, ADMIN: serving, COMMIT: serving}}],
    )
    return client.methods(ADMIN)


def check_looking(calls: AdminCalls, pipeline: Pipeline, key: str) -> None:
    """What a reader asks: status, keys, epochs, the table."""
    status = pipeline.status()
    served = calls.ok("Serves")
    assert served["path"] == str(pipeline.table)
    typed = calls.ok("Status")["status"]
    # A zero is left out of protobuf's JSON.
    assert int(typed["coordinator"].get("term", 0)) == status["coordinator"]["term"]
    assert typed["lastCommit"]["instant"] == status["last_commit"]["instant"]
    assert typed["records"]["committed"]["input"] == str(status["records"]["committed"]["input"])
    assert [each.get("slot", 0) for each in typed["services"]["assign"]] == [0]
    flushed = calls.ok("Flush", {"timeout_ms": 110_000})
    assert flushed["instant"] == status["last_commit"]["instant"]
    found = calls.ok("Lookup", {"keys": [key, "no-such-key"]})["found"]
    assert [(each["key"], each["tier"] == "none") for each in found] == [(key, False), ("no-such-key", True)]
    batch = calls.ok("LookupStream", {"keys": [key, "no-such-key", key]})
    assert [batch["tiers"][place] for place in batch["tier"]] == [found[0]["tier"], "none", found[0]["tier"]]
    assert batch["location"] == [1, 0, 1]
    assert batch["locations"][0]["fileId"] == found[0]["fileId"]
    assert batch["epoch"]
    calls.refused(FAILED_PRECONDITION, "NOT_INDEXED", "LookupValue", {"column": "region", "value": "eu"})
    warm = calls.ok("WarmIndex", {"start": True})
    assert warm["shards"] >= warm.get("loaded", 0) + warm.get("left", 0)
    first = calls.ok("ListEpochs", {"limit": 1})
    (newest,) = first["epochs"]
    second = calls.ok("ListEpochs", {"limit": 1, "page_token": first["nextPageToken"]})
    assert int(second["epochs"][0]["epoch"]) == int(newest["epoch"]) - 1
    shown = calls.ok("ShowEpoch", {"epoch": newest["epoch"]})["epoch"]
    assert shown == newest
    assert int(shown["attempts"][-1]["committedMs"]) >= int(shown["attempts"][-1]["plannedMs"])
    assert calls.ok("ListServices")["json"]
    table = calls.ok("DescribeTable")["description"]
    assert (table["recordKey"], table["partition"], table["servable"]) == (["id"], ["region"], True)
    assert table["newestCommit"]["epoch"] == newest["epoch"]


def check_dead_letters(calls: AdminCalls, pipeline: Pipeline) -> None:
    """Listed in pages, shown whole, replayed for trial."""
    letters = pipeline.dead_letters()
    ids: list[int] = []
    token = ""
    while True:
        page = calls.ok("ListDeadLetters", {"page_size": 10, "page_token": token})
        assert int(page["count"]) == sum(map(int, page["byReason"].values())) == len(letters)
        ids = [*(int(each.get("id", 0)) for each in page["letters"]), *ids]
        if not (token := page.get("nextPageToken", "")):
            break
    assert ids == [each.id for each in letters]
    shown = calls.ok("ShowDeadLetter", {"id": letters[0].id})
    assert (shown["letter"]["reason"], shown["letter"]["topic"]) == (letters[0].reason, pipeline.topic)
    tried = calls.ok(
        "ReplayDeadLetters", {"dry_run": True, "filter": {"ids": [letters[0].id, letters[-1].id]}}
    )
    assert len(tried.get("chosen", [])) + len(tried.get("skipped", [])) == 2
    assert pipeline.dead_letters() == letters
    calls.refused(NOT_FOUND, "DEAD_LETTER_UNKNOWN", "ShowDeadLetter", {"id": letters[-1].id + 1_000_000})


def check_orders(calls: AdminCalls, pipeline: Pipeline, feed: Callable[[], object]) -> None:
    """Pause holds tagging, a flush then says why it came to nothing, and all goes on; a table that agrees."""
    calls.ok("Pause", {"reason": "a foreign client asks"})
    try:
        pipeline.wait("the pause", lambda: calls.ok("Status")["status"]["paused"].get("paused", False))
        late = Answer(0)

        def rests() -> bool:
            """Assigners hear of the pause with their next renewal."""
            nonlocal late
            feed()
            late = calls.ask("Flush", {"timeout_ms": 1_000})
            return late.code == DEADLINE_EXCEEDED

        pipeline.wait("tagging to rest", rests)
        assert "a foreign client asks" in late.text
        assert late.details["RetryInfo"]["retryDelay"] == "1s"

        def ends_by_its_own_deadline() -> bool:
            """What was fed before may have been tagged by an assigner that had not heard of the pause yet."""
            feed()
            return calls.ask("Flush", {"timeout_ms": 60_000}, deadline_s=2.0).code == DEADLINE_EXCEEDED

        pipeline.wait("a call to end by its own deadline", ends_by_its_own_deadline)
    finally:
        calls.ok("Resume")
    calls.ok("Flush", {"timeout_ms": 110_000})
    verified = calls.ok("Verify", {"full": True})["result"]
    assert (verified["agrees"], verified.get("differences", [])) == (True, [])
    last = calls.ok("LastVerification")
    assert last["last"]["endedMs"] == verified["endedMs"]
    assert "isRunning" not in last


def check_refusals(calls: AdminCalls) -> None:
    """Statuses with details that programs can act on."""
    calls.refused(NOT_FOUND, "EPOCH_UNKNOWN", "ShowEpoch", {"epoch": 1_000_000})
    calls.refused(FAILED_PRECONDITION, "EPOCH_NOT_GIVEN_UP", "RetryEpoch", {"epoch": 1})
    nothing = {"topic": "nothing", "partition": 0, "offset": 0}
    calls.refused(FAILED_PRECONDITION, "LANE_NOT_STOPPED", "SkipInput", nothing)
    calls.refused(INVALID_ARGUMENT, "BAD_REQUEST", "RunService", {"kind": "vacuum"})
    for method in ("PauseServices", "ResumeServices"):
        calls.ok(method)
    calls.refused(FAILED_PRECONDITION, "TOPIC_NOT_ACCEPTED", "AcceptTopic", {"topic": "nothing"})
    wrong = calls.refused(INVALID_ARGUMENT, "WRONG_TABLE", "Status", {"table": "another"})
    (field,) = wrong.details["BadRequest"]["fieldViolations"]
    assert field["field"] == "table"
    calls.refused(INVALID_ARGUMENT, "BAD_REQUEST", "ListEpochs", {"page_token": "no token"})
