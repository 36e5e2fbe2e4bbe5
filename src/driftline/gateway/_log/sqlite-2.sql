-- What format 2 adds to format 1. Records of earlier logs were pushed: none of them is foreign.
ALTER TABLE log ADD COLUMN is_foreign INTEGER NOT NULL DEFAULT 0;
INSERT OR IGNORE INTO counters VALUES ('pruned_arrival', 0), ('projected', 0), ('projected_rules', 0);
INSERT INTO documents VALUES ('was', '[]');
CREATE TABLE IF NOT EXISTS rows (
    name TEXT NOT NULL, row_id TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (name, row_id)
) WITHOUT ROWID;
CREATE TABLE row_versions (
    name TEXT NOT NULL, row_id TEXT NOT NULL, seq INTEGER NOT NULL, live INTEGER NOT NULL, watched TEXT NOT NULL,
    PRIMARY KEY (name, row_id, seq)
) WITHOUT ROWID;
