-- The fingerprint of a database: where it differs on connect, it was restored, promoted or copied. The timeline is read
-- from the write-ahead log: the control file has the old one until the checkpoint after a promotion is done.
SELECT concat_ws('.', (SELECT system_identifier FROM pg_control_system()),
    ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int,
    (SELECT oid FROM pg_database WHERE datname = current_database()), 'driftline_log'::regclass::oid)

-- Operations of known ids
SELECT l.hlc, l.delta_id, l.op FROM driftline_log l
JOIN unnest(%b::bigint[], %b::bytea[]) AS given (hlc, delta_id) ON l.hlc = given.hlc AND l.delta_id = given.delta_id
WHERE l.gateway = %s

-- Merged rows
SELECT r.tbl, r.row_id, r.fold FROM driftline_rows r
JOIN unnest(%s::text[], %s::text[]) AS given (tbl, row_id) ON r.tbl = given.tbl AND r.row_id = given.row_id
WHERE r.gateway = %s

-- New records
INSERT INTO driftline_log (gateway, seq, hlc, arrival, op, delta_id, body, is_foreign)
SELECT %s, seq, hlc, arrival, op, delta_id, body, %s
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::smallint[], %b::bytea[], %b::bytea[])
    AS given (seq, hlc, arrival, op, delta_id, body)
