"""Starting Spark and connecting to it: Java and its class archive, the JVM, masters, sessions, Python workers."""
