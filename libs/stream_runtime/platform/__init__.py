"""What the machine must give: a Java 17, the jars of Kafka and Spark, a broker to embed, Spark's environment."""
