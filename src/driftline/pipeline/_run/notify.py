"""Who is told when a run ends: metrics files, lineage, and hooks, which are commands and webhooks (pipeline §10)."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from driftline.core._files import explain_io_errors
from driftline.core._json import JsonObject
from driftline.errors import DriftlineError
from driftline.pipeline.declaration import FinishHook, Pipeline
from driftline.pipeline.lineage import append_lineage
from driftline.pipeline.metrics import metrics_json, write_metrics
from driftline.pipeline.records import RunRecord

_LONGEST_WAIT = 60.0
_LONGEST_TEXT = 1900  # chat tools refuse longer messages
_MOST_LISTED = 8

# What chat tools take; texts in braces are filled in.
FORMATS: JsonObject = {
    "slack": {"text": "{summary}"},
    "discord": {"content": "{summary}"},
    "teams": {
        "type": "message",
        "attachments": [
            {
                "contentType": "application/vnd.microsoft.card.adaptive",
                "content": {
                    "type": "AdaptiveCard",
                    "version": "1.4",
                    "body": [{"type": "TextBlock", "text": "{summary}", "wrap": True}],
                },
            }
        ],
    },
}


def tell(pipeline: Pipeline, record: RunRecord) -> list[str]:
    """Tell everybody who wants to know how a run ended; what went wrong, in words (the result stays what it is)."""
    problems = []
    for told in (write_metrics, append_lineage):
        try:
            told(pipeline, record)
        except DriftlineError as error:
            problems.append(error.message)
    return [*problems, *call_hooks(pipeline, record)]


def call_hooks(pipeline: Pipeline, record: RunRecord) -> list[str]:
    """Call what is declared; what went wrong, in words."""
    problems = []
    for hook in pipeline.hooks:
        if _is_wanted(hook, record):
            if hook.command:
                problems += _insistently(hook, lambda hook=hook: _run_command(pipeline, hook, record))  # type: ignore[misc]
            if hook.webhook:
                problems += _insistently(hook, lambda hook=hook: _post(pipeline, hook, record))  # type: ignore[misc]
    return problems


def _is_wanted(hook: FinishHook, record: RunRecord) -> bool:
    return hook.when == "always" or (hook.when == "success") == (record.result == "done")


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a hook failed, whether it may do better later, and how long it asks to be left alone."""

    words: str
    is_final: bool = False
    wait: float = 0.0


def _insistently(hook: FinishHook, call: Callable[[], _Refusal | None]) -> list[str]:
    """Call until it works, waiting twice as long each time; the last refusal is what is told."""
    refusal = None
    for attempt in range(hook.retries + 1):
        if refusal is not None:
            time.sleep(min(_LONGEST_WAIT, max(refusal.wait, hook.wait * 2 ** (attempt - 1))))
        refusal = call()
        if refusal is None:
            return []
        if refusal.is_final:
            break
    assert refusal is not None
    return [refusal.words + (f" (tried {attempt + 1} times)" if attempt else "")]


def _run_command(pipeline: Pipeline, hook: FinishHook, record: RunRecord) -> _Refusal | None:
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
            input=body_of(pipeline, hook, record),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=hook.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _Refusal(f"the finish command did not end within {hook.timeout:g} s")
    except OSError as error:
        return _Refusal(f"the finish command failed: {error}", is_final=True)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return _Refusal(f"the finish command ended with {done.returncode}: {words[-1] if words else 'no word'}")
    return None


def _post(pipeline: Pipeline, hook: FinishHook, record: RunRecord) -> _Refusal | None:
    assert hook.webhook is not None
    request = urllib.request.Request(  # noqa: S310 - http and https only, checked when the file is read
        hook.webhook,
        data=body_of(pipeline, hook, record),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=hook.timeout):  # noqa: S310
            return None
    except urllib.error.HTTPError as error:
        words = f"the webhook did not take the result: {error.code} {error.reason}"
        return _Refusal(words, error.code < 500 and error.code not in (408, 429), _asked_to_wait(error))
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        return _Refusal(f"the webhook did not take the result: {getattr(error, 'reason', error)}")


def _asked_to_wait(error: urllib.error.HTTPError) -> float:
    with contextlib.suppress(ValueError):
        return float(error.headers.get("Retry-After") or 0)
    return 0.0


def body_of(pipeline: Pipeline, hook: FinishHook, record: RunRecord) -> bytes:
    """What a hook is given: the figures, or the JSON of its format or template with the words filled in."""
    if hook.template is not None:
        template = read_template(pipeline, hook.template)
    elif hook.format in FORMATS:
        template = FORMATS[hook.format]
    else:
        return metrics_json(record)
    return json.dumps(_filled(template, _words(record)), ensure_ascii=False).encode()


def read_template(pipeline: Pipeline, path: str) -> Any:
    """The JSON of a template file."""
    with explain_io_errors(path):
        text = pipeline.place(path).read_bytes().decode()
    try:
        return json.loads(text)
    except ValueError as error:
        raise DriftlineError(f"the template {path} is not JSON: {error}", code="invalid_template") from error


def _filled(template: Any, words: dict[str, str]) -> Any:
    """Texts with their braces filled in: in parsed JSON, so that no quote of a message breaks it."""
    if isinstance(template, str):
        return re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]), template)
    if isinstance(template, list):
        return [_filled(item, words) for item in template]
    return {name: _filled(item, words) for name, item in template.items()} if isinstance(template, dict) else template


def _words(record: RunRecord) -> dict[str, str]:
    problems = [f"{stage.stage}: {stage.problem}" for stage in record.stages if stage.result == "failed"]
    listed = [*([record.problem] if record.problem else []), *problems, *record.exceeded]
    told = listed[:_MOST_LISTED] + ([f"and {len(listed) - _MOST_LISTED} more"] if len(listed) > _MOST_LISTED else [])
    done = sum(stage.result == "done" for stage in record.stages)
    head = f"{record.pipeline}: {record.result} in {record.seconds:.1f} s, {done} of {len(record.stages)} stages done"
    return {
        "pipeline": record.pipeline,
        "run": record.run_id,
        "result": record.result,
        "exit_code": str(record.exit_code),
        "seconds": f"{record.seconds:.1f}",
        "started_at": record.started_at,
        "problems": "\n".join(told),
        "warnings": "\n".join(record.warnings[:_MOST_LISTED]),
        "summary": "\n".join([head, *told, *record.warnings[:_MOST_LISTED]])[:_LONGEST_TEXT],
    }
