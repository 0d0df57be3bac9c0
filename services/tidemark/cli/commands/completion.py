"""`tidemark completion`: what makes a shell complete commands, options and files at TAB.

The shell asks `tidemark` itself, by variables that argcomplete defines; so what is completed is what the
parsers know, and the script never grows old.
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
    """A script for stdout."""
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(["tidemark"], shell=options.shell))
    return 0


def complete_if_asked(parser: argparse.ArgumentParser) -> None:
    """Answers the shell and ends the process, if it is a shell that asks."""
    if ASKED_VARIABLE in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
