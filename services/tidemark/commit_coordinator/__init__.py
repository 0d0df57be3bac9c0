"""The commit coordinator: leases, plans, decisions, and the commit of an epoch into the Hudi table."""
