"""The handlers of a table, by its type and configuration."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service_handoff import ServiceHandoff
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.table_services.archivals import Archive
from tidemark.commit_coordinator.table_services.cleans import CleanData, CleanIndex
from tidemark.commit_coordinator.table_services.compactions import CompactData, CompactIndex
from tidemark.commit_coordinator.table_services.handler import ServiceHandler
from tidemark.commit_coordinator.table_services.rollbacks import RollBackDead
from tidemark.commit_coordinator.table_services.runner import ServiceRules, ServiceRunner
from tidemark.commit_coordinator.table_services.shown import ShownServices
from tidemark.config.table_services_model import TableServicesConfig
from tidemark.hudi_format.timeline import Action


def handlers_of(config: TableServicesConfig, placement: Placement, action: Action) -> list[ServiceHandler]:
    """The kinds that the table has, in the order in which they are planned when several are due. ``action``:
    that of our commits; a COPY_ON_WRITE table has nothing to compact in its data.
    """
    handlers: list[ServiceHandler] = [RollBackDead(config.rollback)]
    if action is Action.DELTA_COMMIT:
        handlers.append(CompactData(config.compact_data, placement))
    handlers.append(CompactIndex(config.compact_index, placement))
    merges = ThreadPoolExecutor(1, thread_name_prefix="archive")
    return [*handlers, CleanData(config), CleanIndex(config), Archive(config.archive, merges)]


def service_runner(
    config: TableServicesConfig, context: Context, handoff: ServiceHandoff, placement: Placement
) -> ServiceRunner:
    """The runner of a term."""
    rules = ServiceRules(config.enabled, config.step_ms, config.clock_skew_ms, config.share)
    runner = ServiceRunner(context, handlers_of(config, placement, context.table.action), handoff, rules)
    runner.show = ShownServices(runner, config, placement).of
    return runner
