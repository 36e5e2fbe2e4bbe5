"""The command of a hook: posts how a pipeline run ended to a chat tool.

    python post_message.py ADDRESS [MEMBER]

The figures of the run come on stdin. MEMBER is the member of the message that has the text: `text` for Slack and
Mattermost, `content` for Discord.
"""

from __future__ import annotations

import json
import sys
import urllib.request


def main(address: str, member: str = "text") -> None:
    run = json.load(sys.stdin)
    lines = [
        f"{run['pipeline']}: {run['result']}",
        *filter(None, [run.get("problem")]),
        *run["exceeded"],
        *run["warnings"],
    ]
    body = json.dumps({member: "\n".join(lines)}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:  # an answer of 4xx or 5xx is an error, and tried again
        answer.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
