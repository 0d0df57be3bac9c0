"""What shufflers, assigners and the writer ask of the coordinator: leases, plans, reports, lookups."""
