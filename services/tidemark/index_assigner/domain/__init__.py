"""Pure decisions of the assigner, on columns: no Kafka, gRPC, storage or clock in here."""
