#!/bin/sh
# A nightly run for cron. It prints only what somebody must read, so that cron mails only then.
# Exit codes are those of `driftline pipeline run`: 0 done, 1 a limit was exceeded, 2 something failed.
set -u
pipeline=${1:?usage: nightly.sh PIPELINE.toml}
cd "$(dirname "$pipeline")" || exit 2
file=$(basename "$pipeline")
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT

# A run that is still under way is waited for up to an hour; --retry-failed would do only what the last night left.
"${DRIFTLINE:-driftline}" pipeline run "$file" --wait 3600 > "$log" 2>&1
code=$?
"${DRIFTLINE:-driftline}" pipeline report "$file" -o report.html >> "$log" 2>&1 || true
if [ "$code" -ne 0 ]; then
  echo "$file ended with $code; the page is $(pwd)/report.html"
  cat "$log"
fi
exit "$code"
