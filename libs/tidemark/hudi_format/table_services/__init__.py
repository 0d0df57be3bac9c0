"""Table services: what compaction, cleaning and rollback are going to do, decided from listings and
timelines, and the records by which Hudi's timelines tell it (TABLE_SERVICES.md).
"""
