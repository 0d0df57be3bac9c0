"""Kafka behind ports: `ports` says what a broker does, `confluent` talks to a real one, `memory` is one in
this process.
"""
