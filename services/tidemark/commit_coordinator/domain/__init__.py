"""Pure decisions of the coordinator: no Kafka, gRPC, storage or clock in here."""
