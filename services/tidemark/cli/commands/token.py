"""`tidemark token`: makes a bearer token, and the line of security.tokens that admits it."""

from __future__ import annotations

import argparse

from tidemark.console.arguments import Commands, add_command
from tidemark.console.output import Output


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "token",
        run,
        "make a bearer token; services store only its hash (security.tokens)",
        "  tidemark token --role read --name grafana                       shows the token and its line\n"
        "  tidemark token --role operate --name anna --list tokens.txt     adds the line to tokens.txt\n"
        "  tidemark token --role service --name k8s --list tokens.txt --out service.token",
        config=False,
    )
    parser.add_argument(
        "--role",
        action="append",
        required=True,
        choices=("read", "operate", "service"),
        help="what its holder may do; may be given more than once",
    )
    parser.add_argument("--name", required=True, metavar="TEXT", help="the name of its holder for logs")
    parser.add_argument("--list", metavar="F", help="add the line to this file (security.tokens.file)")
    parser.add_argument("--out", metavar="F", help="write the token to this new file instead of showing it")


def run(options: argparse.Namespace) -> int:
    """Prints the token, or writes it to a file. It cannot be shown again: services have only its hash."""
    from pathlib import Path

    from tidemark.stream_runtime.ids import SystemIds
    from tidemark.stream_runtime.security.roles import Role
    from tidemark.stream_runtime.security.secret_file import append_secret, create_secret
    from tidemark.stream_runtime.security.tokens import new_token, token_line

    token = new_token(SystemIds())
    line = token_line(token, {Role(role) for role in options.role}, options.name)
    if options.out:
        create_secret(Path(options.out), token + "\n")
    if options.list:
        append_secret(Path(options.list), line + "\n")
    shown = [] if options.out else [token]
    shown += [] if options.list else [line]
    document = {"token": None if options.out else token, "line": line}
    Output(options.json).answer(document, shown)
    return 0
