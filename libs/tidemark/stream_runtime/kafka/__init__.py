"""Kafka behind ports: `ports` says what Tidemark needs of a broker, `confluent` implements that with a real
one. Tests also have an implementation in memory (`testing/kafka`), which passes the same contract tests.
"""
