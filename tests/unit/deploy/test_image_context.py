"""Which packages go into which image, read from the lock file."""

import tomllib
from pathlib import Path

from tools import image_context

ROOT = Path(__file__).resolve().parents[3]


def test_a_lock_file_is_read_by_package_with_its_hashes():
    one, two = (
        "one==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n",
        "Two_x==2.0 \\\n    --hash=sha256:cc\n",
    )
    locked = image_context.locked_requirements(f"# made by\n{one}    # via two\n{two}")
    assert locked == {"one": one, "two-x": two}


def test_the_closure_follows_extras_that_are_asked_for_and_no_others():
    asks = {
        "a": ["B[fast]>=1", 'tests; extra == "test"', 'windows; sys_platform == "win32"'],
        "b": ['quick; extra == "fast"', 'slow; extra == "slow"', "a"],
    }
    assert image_context.closure(["a"], lambda name: asks.get(name, [])) == {"a", "b", "quick"}


def test_every_runtime_package_is_locked_and_in_one_folder_alone():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = image_context.package_groups(project["dependencies"])
    locked = image_context.locked_requirements((ROOT / "requirements.lock").read_text())
    packages = [name for group in groups.values() for name in group]
    assert len(packages) == len(set(packages))
    assert set(packages) <= locked.keys()
    assert "pyspark" in groups["python-spark"]
    assert {"pyarrow", "confluent-kafka"} <= groups["python-executor"]
    assert {"grpcio", "rocksdict"} <= groups["python-service"]
    assert not {"pytest", "mypy", "pandas", "hudi"} & set(packages)
