"""Schemas by id from a registry with Confluent's HTTP API. `ports` says what Tidemark needs of a registry,
`confluent` implements that with a real one.
"""
