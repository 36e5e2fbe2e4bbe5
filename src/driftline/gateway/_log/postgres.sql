-- The tables of the log on PostgreSQL, shared by all gateways of a database.
-- The head is rewritten with every commit: a page with free space keeps its versions.
CREATE TABLE IF NOT EXISTS driftline_head (
    gateway text PRIMARY KEY, log_id text NOT NULL, was text[] NOT NULL DEFAULT '{}', fingerprint text NOT NULL,
    clock bigint NOT NULL DEFAULT 0, last bigint NOT NULL DEFAULT 0, pruned bigint NOT NULL DEFAULT 0,
    pruned_arrival bigint NOT NULL DEFAULT 0, horizon bigint NOT NULL DEFAULT 0, flushed bigint NOT NULL DEFAULT 0,
    flushing bigint NOT NULL DEFAULT 0, config bigint NOT NULL DEFAULT 0, rules bigint NOT NULL DEFAULT 0,
    projected bigint NOT NULL DEFAULT 0, projected_rules bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
CREATE TABLE IF NOT EXISTS driftline_log (
    gateway text NOT NULL, seq bigint NOT NULL, hlc bigint NOT NULL, arrival bigint NOT NULL, op smallint NOT NULL,
    delta_id bytea NOT NULL, body bytea NOT NULL, is_foreign boolean NOT NULL DEFAULT false,
    PRIMARY KEY (gateway, seq), UNIQUE (gateway, hlc, delta_id)
);
CREATE TABLE IF NOT EXISTS driftline_documents (
    gateway text NOT NULL, name text NOT NULL, body bytea NOT NULL, PRIMARY KEY (gateway, name)
);
CREATE TABLE IF NOT EXISTS driftline_tables (
    gateway text NOT NULL, folded text NOT NULL, name text NOT NULL, PRIMARY KEY (gateway, folded)
);
CREATE TABLE IF NOT EXISTS driftline_rows (
    gateway text NOT NULL, tbl text NOT NULL, row_id text NOT NULL, fold bytea NOT NULL,
    PRIMARY KEY (gateway, tbl, row_id)
);
CREATE TABLE IF NOT EXISTS driftline_row_versions (
    gateway text NOT NULL, tbl text NOT NULL, row_id text NOT NULL, seq bigint NOT NULL, live boolean NOT NULL,
    watched text NOT NULL, PRIMARY KEY (gateway, tbl, row_id, seq)
);
