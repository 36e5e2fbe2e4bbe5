"""Between log and lake: flushes, imports, compaction and snapshots, in processes of their own."""
