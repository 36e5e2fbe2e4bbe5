"""The tables and the longer queries of the log on PostgreSQL (gateway §10)."""

from __future__ import annotations

# The head is rewritten with every commit: room in its page keeps its versions there.
SCHEMA = """
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
"""
# Another one on connect: the database was restored, promoted or copied. The timeline is read from the write-ahead log:
# the control file tells the old one until the checkpoint after a promotion is done.
FINGERPRINT = """
SELECT concat_ws('.', (SELECT system_identifier FROM pg_control_system()),
    ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int,
    (SELECT oid FROM pg_database WHERE datname = current_database()), 'driftline_log'::regclass::oid)
"""
KNOWN = """
SELECT l.hlc, l.delta_id, l.op FROM driftline_log l
JOIN unnest(%b::bigint[], %b::bytea[]) AS given (hlc, delta_id) ON l.hlc = given.hlc AND l.delta_id = given.delta_id
WHERE l.gateway = %s
"""
INSERT = """
INSERT INTO driftline_log (gateway, seq, hlc, arrival, op, delta_id, body, is_foreign)
SELECT %s, seq, hlc, arrival, op, delta_id, body, %s
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::smallint[], %b::bytea[], %b::bytea[])
    AS given (seq, hlc, arrival, op, delta_id, body)
"""
