"""gRPC between the services: errors by kind, a server with health and reflection, channels with deadlines."""
