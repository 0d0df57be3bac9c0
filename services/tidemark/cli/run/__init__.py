"""The supervisor of `tidemark run`: an embedded Kafka and the services of a table as child processes."""
