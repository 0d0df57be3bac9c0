"""The tools around what we are made of: an audit that knows nothing must not look like a clean one."""

from __future__ import annotations

from typing import Any

from tools.audit import CLEAN, UNKNOWN, VULNERABLE, judge
from tools.sbom import jar_components

FINE: dict[str, Any] = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "not found"}
BAD = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}


def test_audit_is_clean_only_when_everything_was_looked_up():
    assert judge({"dependencies": [FINE]})[0] == CLEAN
    assert judge({"dependencies": [FINE, SKIPPED]})[0] == UNKNOWN
    assert judge({"dependencies": [SKIPPED]})[0] == UNKNOWN
    assert judge({"dependencies": []})[0] == UNKNOWN
    assert judge({})[0] == UNKNOWN


def test_vulnerability_is_named_also_beside_what_is_unknown():
    for others in ([FINE], [FINE, SKIPPED]):
        code, lines = judge({"dependencies": [*others, BAD]})
        assert code == VULNERABLE
        assert "c 2: PYSEC-1, fixed in 3" in "\n".join(lines)


def test_jars_have_names_versions_checksums_and_their_sets():
    lock = (
        "# set, jar, SHA-256\n"
        "kafka kafka_2.13-4.4.0.jar aa\n"
        "spark-kafka spark-sql-kafka-0-10_2.12-3.5.7.jar bb\n"
        "kafka zstd-jni-1.5.7-17.jar cc\n"
        "spark-kafka zstd-jni-1.5.7-17.jar cc\n"
    )
    found = {each["name"]: each for each in jar_components(lock)}
    assert {name: each["version"] for name, each in found.items()} == {
        "kafka_2.13": "4.4.0",
        "spark-sql-kafka-0-10_2.12": "3.5.7",
        "zstd-jni": "1.5.7-17",
    }
    assert found["kafka_2.13"]["hashes"] == [{"alg": "SHA-256", "content": "aa"}]
    assert [each["value"] for each in found["zstd-jni"]["properties"]] == ["kafka", "spark-kafka"]
