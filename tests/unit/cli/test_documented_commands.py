"""Every command that the documents show is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark.cli.main import build_parser

REPOSITORY = Path(__file__).parents[3]
DOCUMENTS = [
    REPOSITORY / "README.md",
    REPOSITORY / "ARCHITECTURE.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted(REPOSITORY.glob("*/tidemark/*/DESIGN.md")),
]
NUMBER = re.compile(r"(?<= )(N|P|O|ID)\b")
"""What stands for a number in a command."""


def shown(text: str) -> Iterator[str]:
    """Lines of code blocks that begin with the command; options in brackets are taken for given."""
    for block in re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"^(\$ )?(\.venv/bin/)?", "", line.strip())
            if command.startswith("tidemark "):
                yield re.split(r"\s+#\s|\s[|>&]\s", command)[0]


def arguments(command: str) -> list[str]:
    optional = re.sub(r"\[filters\]|…", "", command)
    return shlex.split(NUMBER.sub("1", re.sub(r"[\[\]]", "", optional)))[1:]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_commands_of_the_documents_are_taken(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser()
    for command in shown(document.read_text(encoding="utf-8")):
        code: object = 0
        try:
            parser.parse_args(arguments(command))
        except SystemExit as ended:
            # --help and --version end so, with 0.
            code = ended.code
        assert not code, f"{document.name}: {command}\n{capsys.readouterr().err}"


def test_some_commands_are_shown() -> None:
    assert len(list(shown((REPOSITORY / "README.md").read_text(encoding="utf-8")))) > 7
