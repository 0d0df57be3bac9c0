"""gRPC between the services: a server with limits, health and reflection; channels with deadlines; errors
that keep their kind on the way.
"""
