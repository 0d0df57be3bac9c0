"""`make version-ranges`: are the ranges of the package's metadata as wide as somebody tried?

Makes two environments: one with the oldest version that each range permits, one with the newest that can be
had today. Each gets a copy of the tracked files, from which it makes stubs and installs Tidemark, and runs
tests there.  Whoever installs the wheel gets such a mixture; the lock
file, with which every other target runs, is one point between the two ends.

The runtime dependencies are all that differs: what only developers need is taken as `pyproject.toml` permits.
docs/adr/0002-dependencies.md has the ends, and what ran with them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "build" / "version-ranges"
ENDS: Final = ("oldest", "newest")
TESTS: Final = ("tests/unit", "tests/golden", "tests/contract")


def requirements(pyproject: Path = ROOT / "pyproject.toml") -> tuple[list[Requirement], list[str]]:
    """(what the wheel and its extra `demo` ask for, what developers need besides)."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [Requirement(text) for text in (*project["dependencies"], *extras["demo"])], extras["dev"]


def lower_end(requirement: Requirement) -> str:
    """The oldest version that is permitted, as it is written there.

    Raises ValueError for a range without a lower end: nobody could say what it claims.
    """
    ends = [clause.version for clause in requirement.specifier if clause.operator in (">=", "==")]
    if len(ends) != 1:
        raise ValueError(f"{requirement}: one lower end is needed, '>=' or '=='")
    return ends[0]


def asked(end: str, needed: Sequence[Requirement], for_developers: Sequence[str]) -> list[str]:
    """The arguments of `pip install` for one of `ENDS`."""
    if end == "oldest":
        return [*(f"{each.name}=={lower_end(each)}" for each in needed), *for_developers]
    return ["--upgrade", *(str(each) for each in needed), *for_developers]


def copy_tracked(target: Path) -> None:
    """A copy of the checkout's tracked files, as they are now."""
    shutil.rmtree(target, ignore_errors=True)
    listed = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def environment(end: str, keep: bool = False) -> Path:
    """Makes the environment of one end, and its copy of the checkout, anew; returns its Python. ``keep``: one
    that is there is taken as it is, with the sources that it has.
    """
    folder = FOLDER / end
    python = folder / "env" / "bin" / "python"
    if keep and python.exists():
        return python
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    copy_tracked(folder / "source")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / "env")], check=True)
    subprocess.run([*pip, "install", *asked(end, *requirements())], check=True)
    own = ["--no-deps", "--no-build-isolation", "--editable", str(folder / "source")]
    subprocess.run([*pip, "install", *own], check=True)
    subprocess.run([*pip, "check"], check=True)
    return python


def installed(python: Path) -> list[str]:
    """`name==version` of what the wheel asks for, as it is in an environment."""
    names = [each.name for each in requirements()[0]]
    script = "import sys, importlib.metadata as m; [print(f'{n}=={m.version(n)}') for n in sys.argv[1:]]"
    done = subprocess.run([str(python), "-c", script, *names], check=True, capture_output=True, text=True)
    return done.stdout.split()


def passes(end: str, python: Path, tests: str) -> bool:
    """Runs a level, or a part of one, as the Makefile does, but contract in one process, with one broker."""
    processes = "0" if tests.startswith("tests/contract") else "2"
    command = [str(python), "-m", "pytest", "-q", "-n", processes, tests]
    # The copy lies in the checkout and is none: git must not take it for a folder of it.
    outside = {**os.environ, "GIT_CEILING_DIRECTORIES": str(FOLDER / end)}
    return subprocess.run(command, cwd=FOLDER / end / "source", env=outside, check=False).returncode == 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make version-ranges", description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="*", default=TESTS, help=f"what runs in each (default: {TESTS})")
    parser.add_argument("--end", choices=ENDS, action="append", help="this end alone")
    parser.add_argument("--dry-run", action="store_true", help="only make the environments")
    parser.add_argument(
        "--keep", action="store_true", help="take environments that are there, to run in parts"
    )
    chosen = parser.parse_args(arguments)
    failed: list[str] = []
    for end in chosen.end or ENDS:
        python = environment(end, chosen.keep)
        sys.stdout.write(f"version-ranges: {end}: {' '.join(installed(python))}\n")
        sys.stdout.flush()
        if chosen.dry_run:
            continue
        failed += [f"{end}: {tests}" for tests in chosen.tests if not passes(end, python, tests)]
    for each in failed:
        sys.stderr.write(f"version-ranges: failed with {each}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
