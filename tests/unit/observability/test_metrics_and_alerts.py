"""What is exposed, documented, alerted on and drawn are the same metrics; Prometheus takes the queries."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.observability.exposed_metrics import all_metrics, exposed_name
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.stream_runtime.metrics import UNITS

ROOT = Path(__file__).resolve().parents[3]
OBSERVABILITY = ROOT / "deploy" / "observability"
DASHBOARD = OBSERVABILITY / "grafana" / "dashboards" / "tidemark.json"
OF_EVERY_PROCESS = re.compile(r"tidemark_[a-z]+_(info|process_(cpu|resident|virtual|start|open|max)_\w+)")
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*) \| (.+) \|$", re.MULTILINE)
NAME = re.compile(r"\btidemark_[a-z0-9_]+\b")
promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt-get install prometheus)"
)


def documented() -> dict[str, tuple[str, set[str], str]]:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    found = ROW.findall(text)
    assert len(found) == len({name for name, *_ in found}), "a metric stands there twice"
    return {name: (kind, set(re.findall(r"\w+", labels)), said) for name, kind, labels, said in found}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((OBSERVABILITY / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> list[str]:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def check(*arguments: str | Path) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_exposed_is_what_is_documented(tmp_path: Path) -> None:
    shown = {exposed_name(each): each for each in all_metrics(tmp_path)}
    own = {name for name in shown if not OF_EVERY_PROCESS.fullmatch(name)}
    told = documented()
    assert own == told.keys()
    for name in own:
        family, (kind, labels, said) = shown[name], told[name]
        assert (family.type, family.documentation) == (kind, said), name
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == labels | {"table"}, name


def test_every_name_ends_with_its_unit_and_every_metric_says_what_it_is(tmp_path: Path) -> None:
    for family in all_metrics(tmp_path):
        words = exposed_name(family).removesuffix("_total").split("_")
        assert words[-1] in UNITS | {"info", "fds"}, family.name
        assert len(family.documentation) > 5, family.name
        assert exposed_name(family).endswith("_total") == (family.type == "counter"), family.name


def test_alerts_and_panels_ask_for_metrics_that_exist(tmp_path: Path) -> None:
    exist = {exposed_name(each) for each in all_metrics(tmp_path)}
    exist |= {f"{name}_{part}" for name in set(exist) for part in ("bucket", "sum", "count")}
    asked = {
        name for text in [*queries(), *(rule["expr"] for rule in rules())] for name in NAME.findall(text)
    }
    assert len(asked) > 40
    assert asked - exist == set()


def test_alerts_write_their_metrics_names_in_full() -> None:
    # A pattern is checked by nobody, and increase and changes drop the name that keeps its series apart.
    assert [rule["alert"] for rule in rules() if "__name__" in rule["expr"]] == []


def test_every_alert_has_its_section_in_the_runbook_and_every_section_its_alert() -> None:
    text = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    sections = {part.split("\n", 1)[0]: part for part in text.split("\n## ")[1:]}
    assert sections.keys() == {rule["alert"] for rule in rules()}
    for rule in rules():
        said = sections[rule["alert"]]
        assert f"*{rule['labels']['severity']}*" in said
        assert all(word in said for word in ("**Means:**", "**Look at:**", "**Do:**")), rule["alert"]
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"


def test_the_runbook_tells_another_writers_lock_from_tidemarks_own() -> None:
    """Another writer's is a file; the folder is what keeps a coordinator that lives from harm."""
    text = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    section = text.partition("\n## TidemarkLockHeld\n")[2].partition("\n## ")[0]
    assert f"delete the *file* `{LOCK_PATH}`" in section
    assert f"folder `{LOCK_PATH}`" not in section
    assert "never delete it" in section


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    cases = yaml.safe_load((OBSERVABILITY / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
    fires = {
        each["alertname"]
        for case in cases
        for each in case["alert_rule_test"]
        if len(each["exp_alerts"]) == 1
    }
    assert fires == {rule["alert"] for rule in rules()}


def test_dashboard_is_well_formed() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    sources = yaml.safe_load(
        (OBSERVABILITY / "grafana" / "provisioning" / "datasources" / "prometheus.yml").read_text("utf-8")
    )
    uid = sources["datasources"][0]["uid"]
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert all(target["datasource"]["uid"] == uid for target in panel.get("targets", ()))
        assert panel["type"] == "row" or panel["targets"]


@promtool
def test_rules_and_their_cases_hold_for_prometheus() -> None:
    check("check", "rules", OBSERVABILITY / "alerts.yml")
    check("check", "config", OBSERVABILITY / "prometheus.yml")
    check("test", "rules", OBSERVABILITY / "alerts_test.yml")


@promtool
def test_every_query_of_the_dashboard_can_be_parsed(tmp_path: Path) -> None:
    filled = [query.replace("$table", "t").replace("$__rate_interval", "1m") for query in queries()]
    recorded = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(filled)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    check("check", "rules", file)
