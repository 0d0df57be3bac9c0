"""Whose transaction holds readers of the ledger back, as both brokers tell it."""

from __future__ import annotations

from tests.contract.kafka_cluster import KafkaCluster, commit
from tidemark.commit_coordinator.status.open_transactions import OpenTransactions
from tidemark.epoch_protocol.entries import Stage, TransactionBegun, encode_entry


def test_the_oldest_open_transaction_is_named_by_its_slot_until_it_ends(cluster: KafkaCluster):
    ledger = cluster.partition()
    looks = OpenTransactions(cluster.client, cluster.admin(), ledger, cluster.clock)

    def until(slot: int | None) -> None:
        """An ended transaction stays open until its marker is written, some milliseconds later."""
        deadline_s = cluster.clock.monotonic_s() + 60.0
        found = looks.oldest()
        while (found.slot if found is not None else None) != slot:
            assert cluster.clock.monotonic_s() < deadline_s, found
            cluster.clock.sleep(0.02)
            found = looks.oldest()
        assert found is None or (found.stage is Stage.ASSIGN and 0 <= found.age_ms < 60_000)

    until(None)
    first, second = cluster.producer(), cluster.producer()
    commit(first, ledger, encode_entry(TransactionBegun(Stage.ASSIGN, 7, "ended")))
    until(None)
    for slot, producer in ((3, first), (5, second)):
        producer.begin()
        producer.produce(ledger, encode_entry(TransactionBegun(Stage.ASSIGN, slot, f"n{slot}")))
        producer.flush()
    until(3)
    first.abort()
    until(5)
    second.commit()
    until(None)
    looks.close()
