"""The steps that a commit is made of: instants, markers, heartbeat, lock, rollback, and the making of a
table.
"""
