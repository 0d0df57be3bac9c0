#!/bin/sh
exec python3.11 -m tidemark.cli.entry "$@"
