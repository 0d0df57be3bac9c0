"""How a file that counts comes to be: prepared, then published or revoked, and by whom. `port.py` says what
callers may assume; what folders, links and renames have to do with it is known in here alone.
"""
