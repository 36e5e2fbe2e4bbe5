"""The commented template that `driftline pipeline init` writes."""

TEMPLATE = """\
# A driftline pipeline: what flows where. Paths are relative to this file.
# Try:  driftline pipeline plan {name}     driftline pipeline run {name}

[pipeline]
name = "nightly"
# state = ".driftline/nightly"   # records of runs, and what is needed to go on after a kill
# engine = "auto"                # auto, local or spark
# master = "local[2]"            # a Spark master or sc:// address; implies spark
# parallel = 2                   # stages side by side
# memory = "2GB"                 # for each table comparison on this machine

[lake]                           # needed for `deltas`
path = "lake"
# client_id = "nightly"          # who the deltas are from

[tables.customers]
snapshots = "data/customers-{{date}}.csv"   # every new day is compared with the day before; {{n}} for numbers
# before = "old.csv"             # ... or two files
# after = "new.csv"
key = ["id"]
# header_mode = "strict"         # strict or sorted
# delimiter = ";"
# since = "2026-01-01"           # leave older snapshots alone
# columns = {{ balance = "number", active = "boolean" }}   # types in the lake and in SQLite; the rest is text
# on_new_column = "add"          # a column that was not there before: fail, ignore or add
# on_missing_column = "null"     # one that is gone: fail, or null from then on
# on_type_change = "refresh"     # another declared type: fail, or a new generation of the lake table
fail_if = ["changed > 5%", "removed > 1000"]   # then the run ends with 1 and nothing of this table goes on
events = "out/customers-{{to}}.jsonl"
# warn_if = ["added > 3 x usual", "changed(balance) > 1%", "age > 26h"]   # told, and nothing else
# events_format = "jsonl"        # jsonl, json, csv or markdown
deltas = true                    # into the lake
compact = true
# patchset = "out/customers-{{to}}.patchset"     # for SQLite
# changeset = "out/customers-{{to}}.changeset"

[[tables.customers.state]]       # the table at a moment, from the lake
path = "out/customers-now.csv"
format = "csv"                   # jsonl, csv, parquet or sqlite
# as_of = "2026-03-02"           # a day, a time or an hlc; now where it is missing

# [tables.stock]                 # a table that follows change events of a database
# changes = "cdc/stock"          # a folder or s3://bucket/prefix/ of JSON lines: Debezium, wal2json, Maxwell
# changes_table = "public.stock" # its name there; that of the section where it is missing
# partitioned = true             # events of one key are always in files of one partition
# snapshots = "data/stock-{{date}}.csv"   # optional: each is compared once with what the events led to
# key = "sku"
# deltas = true

# [payloads.orders_api]          # old and new responses of an API
# pairs = "api/pairs.jsonl"      # {{"id": ..., "old": ..., "new": ...}} a line; or old = and new = (joined by id)
# schema = "api/schema.yaml"     # with x-migration-* rules
# report = "out/api-report"      # a folder: a report per pair, totals, coverage of rules
# fail_if = ["different > 0"]

# [indexes.code]                 # two builds of a code index
# cache_root = "index-cache"
# from = "tag:v1"                # or "git:v1" and "git:HEAD" with repo = "."
# to = "latest"
# events = "out/index-changes.jsonl"
# registry = true

[metrics]
json = "out/metrics.json"
# prometheus = "out/driftline.prom"

# [lineage]
# openlineage = "out/lineage.jsonl"   # OpenLineage events, added by every run

# [history]
# runs = 100                     # so many are remembered
# days = 400                     # and none that is older

# [[hooks]]                      # any number of them
# command = ["sh", "-c", "echo $DRIFTLINE_PIPELINE: $DRIFTLINE_RESULT >> runs.log"]
# webhook = "https://example.org/hook"
# format = "slack"               # slack, discord, teams; or template = "message.json"
# when = "failure"               # always, success or failure
# retries = 3
# timeout = 60                   # seconds
"""


def template_for(name: str) -> str:
    """The template, with the file's name in its hints."""
    return TEMPLATE.format(name=name)
