"""`make audit`: asks the vulnerability data of the package index about every Python package of the lock file.

The exit code is about Python packages alone. 0: all were asked about, none is known to be vulnerable; 1: some
are, named; 2: not all could be asked about (no network, an index without such data), which is no result at
all and is said so.

No exit code says anything of jars: the package index knows none. What it says of pyspark holds for pyspark's
own version, not for the jars inside it, nor for those of `jars.lock`: they are named as not looked up, with
how many there are. A code of their own would make every audit fail, and so hide the one that finds something.
Names, versions, checksums and licences are in the bill of materials (`make sbom`), which other tools read.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tools.sbom import bundled_jars, jar_components, pyspark_jars

CLEAN: Final = 0
VULNERABLE: Final = 1
UNKNOWN: Final = 2
_TIMEOUT_S: Final = 600.0


def main(arguments: list[str] | None = None) -> int:
    """Runs pip-audit and judges its report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tool", type=Path, help="the pip-audit to run")
    parser.add_argument("lock", type=Path, help="the lock file, with hashes")
    parser.add_argument("--jars", type=Path, help="jars.lock")
    parser.add_argument("--python", type=Path, help="the interpreter whose pyspark's jars are named")
    options = parser.parse_args(arguments)
    command = [str(options.tool), "--requirement", str(options.lock), "--require-hashes", "--disable-pip"]
    command += ["--no-deps", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        report = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return _say(UNKNOWN, [f"audit: no answer within {_TIMEOUT_S:.0f} s: nothing is known"])
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return _say(UNKNOWN, [f"audit: the vulnerability data cannot be reached, nothing is known ({last})"])
    code, lines = judge(report)
    return _say(code, [*lines, *not_looked_up(options.jars, options.python)])


def not_looked_up(lock: Path | None, python: Path | None) -> list[str]:
    """What the package index cannot know."""
    if lock is None or python is None:
        return []
    fetched, bundled = jar_components(lock.read_text("utf-8")), bundled_jars(pyspark_jars(python))
    named = ", ".join(f"{each['name']} {each['version']}" for each in bundled)
    return [
        f"audit: NOT LOOKED UP: {len(fetched)} jars of {lock.name} and {len(bundled)} inside pyspark: the "
        "exit code says nothing of them. Give the bill of materials (`make sbom`) to a scanner that knows "
        "Maven's packages",
        f"audit: inside pyspark: {named}",
    ]


def judge(report: dict[str, Any]) -> tuple[int, list[str]]:
    """The exit code and what to say of pip-audit's report."""
    packages = report.get("dependencies", [])
    vulnerable = [package for package in packages if package.get("vulns")]
    skipped = [package for package in packages if "skip_reason" in package]
    lines = [
        f"audit: {package['name']} {package['version']}: {each['id']}, fixed in "
        f"{', '.join(each.get('fix_versions', [])) or 'no version yet'}"
        for package in vulnerable
        for each in package["vulns"]
    ]
    asked = len(packages) - len(skipped)
    lines.append(
        f"audit: {asked} of {len(packages)} Python packages were looked up, {len(vulnerable)} are vulnerable"
    )
    if skipped or not packages:
        lines.append(
            "audit: THE REST IS NOT KNOWN: the package index in use has no vulnerability data for it"
        )
        return VULNERABLE if vulnerable else UNKNOWN, lines
    return VULNERABLE if vulnerable else CLEAN, lines


def _say(code: int, lines: list[str]) -> int:
    sys.stderr.write("\n".join(lines) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
