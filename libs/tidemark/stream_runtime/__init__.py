"""What every service needs of its surroundings: time, ids, retries, failpoints, logs, metrics, traces, HTTP,
Kafka, schema registry, gRPC, security, and the platform (Java, jars, Spark's environment).

Services get clock, random numbers, ids and broker as arguments, behind protocols that are defined here. So a
test can replace them and run a whole table inside one process. No module of this package imports one that
knows epochs, lanes or Hudi's files.
"""
