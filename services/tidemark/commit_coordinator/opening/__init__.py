"""From a configuration to a table that is served: creation, checks, topics, identity, takeover."""
