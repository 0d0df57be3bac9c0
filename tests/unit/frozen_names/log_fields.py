"""Names of the fields that lines of the log bear, from the code that gives them, and from real lines."""

from __future__ import annotations

import ast
import io
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from tidemark import errors
from tidemark.config.log_format import LogFormat
from tidemark.stream_runtime.logging import ROOT, configure_logging

REPOSITORY = Path(__file__).resolve().parents[3]


def log_fields() -> set[str]:
    """Those of every line, and those that `bound` and `extra` add anywhere in the product."""
    files = [each for root in ("libs", "services") for each in (REPOSITORY / root).rglob("*.py")]
    assert Path(errors.__file__) in files
    modules = [ast.parse(file.read_text("utf-8")) for file in files]
    functions: dict[str, ast.FunctionDef] = {}
    for module in modules:
        functions |= _functions(module)
    return _of_a_line() | {name for module in modules for name in fields_of(module, functions)}


def fields_of(
    module: ast.Module, elsewhere: Mapping[str, ast.FunctionDef] = MappingProxyType({})
) -> Iterator[str]:
    """The fields that a module adds; of `bound(**call(...))` the keys of the dictionaries that it returns.
    ``elsewhere``: functions that it may import.
    """
    functions = {**elsewhere, **_functions(module)}
    for call in (each for each in ast.walk(module) if isinstance(each, ast.Call)):
        is_bound = isinstance(call.func, ast.Name) and call.func.id == "bound"
        for keyword in call.keywords:
            if is_bound and keyword.arg is not None:
                yield keyword.arg
            elif (
                is_bound and isinstance(keyword.value, ast.Call) and isinstance(keyword.value.func, ast.Name)
            ):
                yield from _keys(functions[keyword.value.func.id])
            elif keyword.arg == "extra":
                yield from _keys(keyword.value)


def _functions(module: ast.Module) -> dict[str, ast.FunctionDef]:
    return {each.name: each for each in ast.walk(module) if isinstance(each, ast.FunctionDef)}


def _keys(tree: ast.AST) -> Iterator[str]:
    for each in ast.walk(tree):
        if isinstance(each, ast.Dict):
            yield from (str(key.value) for key in each.keys if isinstance(key, ast.Constant))


def _of_a_line() -> set[str]:
    log, written = logging.getLogger(ROOT), io.StringIO()
    before = (log.handlers, log.level, log.propagate)
    try:
        configure_logging("coordinator", LogFormat.JSON, stream=written, table="orders")
        try:
            raise RuntimeError("planted")
        except RuntimeError:
            log.exception("a line with all fields")
    finally:
        log.handlers, log.level, log.propagate = before
    return set(json.loads(written.getvalue()))
