"""The simplest receiver that an Alertmanager can have: a log with a line for each alert.

    python -m monitor.telemetry.alert_log --port 5001

``deploy/compose.yaml`` runs it beside the Alertmanager, so that alerts arrive somewhere before
anybody has decided where they should go. Put your own receiver in its place in
``deploy/alertmanager/alertmanager.yml``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import click

#: Far more than a message with a thousand alerts.
LONGEST_BYTES = 16 << 20


def lines(message: Any) -> Iterator[str]:
    """One line for each alert of a message of the Alertmanager.

    >>> alert = {"status": "firing", "labels": {"alertname": "FeedSilent", "severity": "warning"},
    ...          "annotations": {"summary": "cam-1 is silent", "runbook_url": "/r"}}
    >>> list(lines({"alerts": [alert]}))
    ['firing warning FeedSilent: cam-1 is silent /r']
    """
    for alert in message["alerts"]:
        labels, notes = alert["labels"], alert["annotations"]
        words = [alert["status"], labels.get("severity", "none"), f"{labels['alertname']}:"]
        words += [notes.get("summary", ""), notes.get("runbook_url", "")]
        # One alert is one line, whatever stands in it.
        yield " ".join(" ".join(words).split())


class _Receiver(BaseHTTPRequestHandler):
    timeout = 30

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        try:
            if length > LONGEST_BYTES:
                raise ValueError("too long")
            found = list(lines(json.loads(self.rfile.read(length))))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.send_error(400, f"not a message of the Alertmanager ({type(error).__name__})")
            return
        for line in found:
            click.echo(line)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return


def server(host: str, port: int) -> ThreadingHTTPServer:
    """Listens, and serves when told to."""
    return ThreadingHTTPServer((host, port), _Receiver)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write a line to stdout for each alert.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5001)
    given = parser.parse_args(arguments)
    server(given.host, given.port).serve_forever()


if __name__ == "__main__":
    main()
