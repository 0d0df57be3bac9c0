"""`tidemark config show`, `check`: prints a configuration with its defaults, and checks whether it can
work.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.console.arguments import Commands, add_command, add_group
from tidemark.console.output import Output, columns, printable
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone

if TYPE_CHECKING:
    from tidemark.config.effective import Setting


def add(commands: Commands) -> None:
    """Adds the group."""
    group = add_group(commands, "config", "show or check a table's configuration")
    show = add_command(
        group,
        "config show",
        run_show,
        "print the configuration as it was parsed, references to the environment filled in, secrets hidden",
        "  tidemark config show -c flights.yaml\n"
        "  tidemark config show -c flights.yaml --effective           every key, defaults too, and why\n"
        "  tidemark config show -c flights.yaml --effective --json | jq '.settings[] | select(.line)'",
    )
    show.add_argument(
        "--effective",
        action="store_true",
        help="print every key, its value, and where that comes from: a line of the file, a variable of the "
        "environment, the default",
    )
    add_command(
        group,
        "config check",
        run_check,
        "check what can be checked of the configuration without Kafka and the table (`tidemark doctor` does "
        "the rest); exit code 2 when it cannot work",
        "  tidemark config check -c flights.yaml",
    )


def run_show(options: argparse.Namespace) -> int:
    """Prints the file, or with --effective every setting. Without --effective the file only has to be YAML,
    so a configuration that is wrong can be shown as well.
    """
    from tidemark.config import load_config
    from tidemark.config.effective import effective_settings, hide_secrets
    from tidemark.config.origins import read_document

    output = Output(options.json)
    if not options.effective:
        file = Path(options.config).expanduser().resolve()
        parsed = hide_secrets(read_document(file, os.environ))
        output.answer({"file": str(file), "document": parsed}, _as_yaml(parsed))
        return 0
    config = load_config(options.config)
    settings = effective_settings(config)
    document = {"file": str(config.file), "settings": [_document(setting) for setting in settings]}
    output.answer(document, _lines(config.file, settings))
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Prints warnings and notes. Raises ConfigError for a configuration that cannot work."""
    use_arrow_alone()
    from tidemark.doctor.config_check import check_config_file

    config, warnings, notes = check_config_file(options.config)
    output = Output(options.json)
    lines = [*(f"warning: {text}" for text in warnings), *notes, f"{config.file} can be used"]
    output.answer({"file": str(config.file), "warnings": warnings, "notes": notes}, lines)
    return 0


def _as_yaml(parsed: Any) -> list[str]:
    import yaml

    text: str = yaml.safe_dump(
        parsed, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
    )
    return text.splitlines()


def _document(setting: Setting) -> dict[str, Any]:
    origin = setting.origin
    return {
        "key": setting.key,
        "value": setting.value,
        "source": setting.source,
        "line": None if origin is None else origin.line,
        "environment": [] if origin is None else list(origin.variables),
    }


def _lines(file: Path, settings: list[Setting]) -> list[str]:
    rows = [(setting.key, printable(_text(setting.value)), setting.source) for setting in settings]
    return [f"{file}:", *columns(rows)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
