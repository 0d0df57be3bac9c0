"""The steps of a commit: instants, markers, heartbeat and rollback; also how an empty table is created, and
the options that other writers of the table need.
"""
