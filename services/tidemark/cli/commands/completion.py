"""`tidemark completion`: prints the script by which a shell completes commands, options and files at TAB.

At TAB the shell calls `tidemark` with variables that argcomplete defines. So the parsers give the answer, and
the script fits every version.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from tidemark.console.arguments import Commands, add_command

ASKED_VARIABLE: Final = "_ARGCOMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish")
_EXAMPLES: Final = """\
  bash   tidemark completion bash > ~/.local/share/bash-completion/completions/tidemark
         or, for this shell alone:   source <(tidemark completion bash)
  zsh    tidemark completion zsh > "${fpath[1]}/_tidemark"      then start zsh anew
         or, behind compinit:        source <(tidemark completion zsh)
  fish   tidemark completion fish > ~/.config/fish/completions/tidemark.fish

`tidemark` has to be on PATH: `make setup` puts it into .venv/bin.
"""


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "completion",
        run_completion,
        "print the script that makes a shell complete commands and options at TAB",
        _EXAMPLES,
        config=False,
        json=False,
    )
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help="bash, zsh or fish")


def run_completion(options: argparse.Namespace) -> int:
    """Prints the script."""
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(["tidemark"], shell=options.shell))
    return 0


def complete_if_asked(parser: argparse.ArgumentParser) -> None:
    """If a shell called for completions, answers it and ends the process."""
    if ASKED_VARIABLE in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
