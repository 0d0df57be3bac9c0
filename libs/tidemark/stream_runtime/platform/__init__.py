"""What Tidemark needs of the machine that it runs on: Java 17, jars, class data archives, an embedded Kafka,
Spark's environment, child processes, open files, memory, and the state folder.
"""
