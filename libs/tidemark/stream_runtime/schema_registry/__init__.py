"""Schemas by id from a registry that speaks Confluent's HTTP API. `ports` says what is needed of it,
`confluent` asks a real one."""
