"""The tools around what we are made of: an audit that knows nothing must not look like a clean one."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools import audit
from tools.audit import CLEAN, UNKNOWN, VULNERABLE, judge, main, not_looked_up
from tools.sbom import bundled_jars, jar_components, pyspark_jars

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


@pytest.fixture(scope="module")
def inside_pyspark() -> list[dict[str, Any]]:
    return bundled_jars(pyspark_jars(Path(sys.executable)))


def test_every_jar_inside_pyspark_is_listed_with_its_checksum(inside_pyspark):
    folder = pyspark_jars(Path(sys.executable))
    files = {jar.name for jar in folder.glob("*.jar")}
    assert len(files) > 200
    assert {f"{each['name']}-{each['version']}.jar" for each in inside_pyspark if each["version"]} <= files
    assert len(inside_pyspark) == len(files)
    netty = next(each for each in inside_pyspark if each["name"] == "netty-common")
    jar = folder / f"netty-common-{netty['version']}.jar"
    assert netty["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(jar.read_bytes()).hexdigest()}]
    assert netty["purl"] == f"pkg:maven/io.netty/netty-common@{netty['version']}"
    assert {"derby", "zookeeper", "jackson-databind"} <= {each["name"] for each in inside_pyspark}


def test_licences_are_what_the_jars_say(inside_pyspark, tmp_path: Path):
    licences = {
        each["name"]: [named["license"]["name"] for named in each["licenses"]]
        for each in inside_pyspark
        if "licenses" in each
    }
    assert len(licences) > len(inside_pyspark) // 3
    assert "Apache" in " ".join(licences["jackson-databind"])
    with zipfile.ZipFile(tmp_path / "silent-1.0.jar", "w") as jar:
        jar.writestr("a.class", b"")
    with zipfile.ZipFile(tmp_path / "said-2.0.jar", "w") as jar:
        jar.writestr(
            "META-INF/maven/g.h/said/pom.xml",
            "<project><name>x</name><licenses><license><name> MIT </name></license></licenses></project>",
        )
    said, silent = bundled_jars(tmp_path)
    assert (said["group"], said["licenses"]) == ("g.h", [{"license": {"name": "MIT"}}])
    assert "licenses" not in silent
    assert json.dumps([said, silent])


def test_audit_says_which_jars_nobody_looked_up():
    lines = not_looked_up(Path("libs/tidemark/stream_runtime/platform/jars.lock"), Path(sys.executable))
    assert "NOT LOOKED UP" in lines[0]
    assert "derby 1" in lines[1]
    assert not_looked_up(None, None) == []


@pytest.mark.parametrize(
    ("found", "code"), [([FINE], CLEAN), ([FINE, BAD], VULNERABLE), ([FINE, SKIPPED], UNKNOWN)]
)
def test_the_exit_code_is_about_python_packages_and_each_audit_says_so(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    inside_pyspark: list[dict[str, Any]],
    found: list[dict[str, Any]],
    code: int,
):
    # Their checksums take most of a second.
    monkeypatch.setattr(audit, "bundled_jars", lambda _: inside_pyspark)
    tool = tmp_path / "pip-audit"
    report = json.dumps({"dependencies": found})
    tool.write_text(f"#!{sys.executable}\nprint({report!r})\n")
    tool.chmod(0o755)
    jars = "libs/tidemark/stream_runtime/platform/jars.lock"
    arguments = [str(tool), "requirements.lock", "--jars", jars, "--python", sys.executable]
    assert main(arguments) == code
    said = capsys.readouterr().err
    assert "Python packages were looked up" in said
    assert "inside pyspark: the exit code says nothing of them" in said
    assert "Python packages alone" in " ".join(str(audit.__doc__).split())
