"""The handlers of a table, by its type and configuration."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service_handoff import ServiceHandoff
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.table_services.archivals import Archive
from tidemark.commit_coordinator.table_services.chosen_groups import FailedMerges
from tidemark.commit_coordinator.table_services.cleans import CleanData, CleanIndex
from tidemark.commit_coordinator.table_services.compactions import CompactData, CompactIndex
from tidemark.commit_coordinator.table_services.handler import ServiceHandler
from tidemark.commit_coordinator.table_services.pressure import ServicePressure
from tidemark.commit_coordinator.table_services.rollbacks import RollBackDead
from tidemark.commit_coordinator.table_services.runner import ServiceRules, ServiceRunner
from tidemark.commit_coordinator.table_services.shown import ShownServices
from tidemark.config.model import TableConfigFile
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
    return [*handlers, CleanData(config, placement), CleanIndex(config), Archive(config.archive, merges)]


def service_runner(
    config: TableConfigFile, context: Context, handoff: ServiceHandoff, placement: Placement
) -> ServiceRunner:
    """The runner of a term."""
    services = config.table_services
    rules = ServiceRules(services.enabled, services.step_ms, services.clock_skew_ms, services.share)
    interval_ms = config.epoch.interval_ms
    pressure = ServicePressure(services, placement, interval_ms, handoff.progress_of)
    handlers = handlers_of(services, placement, context.table.action)
    left_out = {found.kind: found.left_out for found in handlers if isinstance(found, RollBackDead)}
    runner = ServiceRunner(context, handlers, handoff, rules, pressure)
    runner.show = ShownServices(runner, services, placement, left_out).of
    runner.note_failed = FailedMerges(placement, runner.plan_of).note
    return runner
