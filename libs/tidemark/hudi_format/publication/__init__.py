"""How files that take effect for readers are made: they are prepared, then published or revoked. `port.py`
says what callers may assume; only this package knows which folders, links and renames do it.
"""
