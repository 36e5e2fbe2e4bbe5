"""How Spark is started and reached: Java, the JVM and its class archive, sessions, shipping, workers."""
