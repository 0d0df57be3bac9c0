"""What the machine must give: a Java 17, jars, a broker to embed, Spark's environment."""
