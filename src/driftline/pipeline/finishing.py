"""What happens when a run ends: a command with the result in its environment, a webhook with it as JSON."""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request

from driftline.pipeline.declaration import FinishHook, Pipeline
from driftline.pipeline.metrics import metrics_json
from driftline.pipeline.records import RunRecord

_TIMEOUT_SECONDS = 60


def call_hooks(pipeline: Pipeline, record: RunRecord) -> list[str]:
    """Call what is declared; what went wrong, in words (a hook never changes the result of a run)."""
    hook = pipeline.finish
    if not _is_wanted(hook, record):
        return []
    problems = []
    if hook.command:
        problems += _run_command(pipeline, hook, record)
    if hook.webhook:
        problems += _post(hook.webhook, record)
    return problems


def _is_wanted(hook: FinishHook, record: RunRecord) -> bool:
    return hook.when == "always" or (hook.when == "success") == (record.result == "done")


def _run_command(pipeline: Pipeline, hook: FinishHook, record: RunRecord) -> list[str]:
    environment = {
        **os.environ,
        "DRIFTLINE_PIPELINE": record.pipeline,
        "DRIFTLINE_RUN": record.run_id,
        "DRIFTLINE_RESULT": record.result,
        "DRIFTLINE_EXIT_CODE": str(record.exit_code),
    }
    try:
        done = subprocess.run(
            hook.command,
            cwd=pipeline.directory,
            env=environment,
            input=metrics_json(record),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"the finish command failed: {error}"]
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return [f"the finish command ended with {done.returncode}: {words[-1] if words else 'no word'}"]
    return []


def _post(address: str, record: RunRecord) -> list[str]:
    request = urllib.request.Request(  # noqa: S310 - http and https only, checked when the file is read
        address, data=metrics_json(record), headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS):  # noqa: S310
            return []
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return [f"the webhook did not take the result: {reason}"]
