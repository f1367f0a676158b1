"""Live page of a running run, served to this computer only, until the run ends."""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from securevfl.report import figures
from securevfl.report.page import SUMMARY, render_live, value_text
from securevfl.report.records import Record
from securevfl.runs.history import Progress

HOST = "127.0.0.1"
_IDLE = 10.0  # seconds after which a connection that asks nothing is closed
_POLL = 0.1  # seconds within which the end of the run is noticed
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass
class LivePage:
    """A context in which a page about a run is served on the loopback address.

    The port is a free one and the path holds 192 random bits. Every other path, and every request
    for another host, gets an empty 404, so that other users of this computer and other pages in its
    browser learn nothing.

    Parameters
    ----------
    name : str
        Name of the protocol.
    title : str
        Heading.
    engine : str
        Engine whose clock the page shows.
    """

    name: str
    title: str
    engine: str = "simulation"
    rows: list[dict[str, Any]] = field(default_factory=list, init=False)
    told: str = field(default="", init=False)
    _token: str = field(default_factory=lambda: secrets.token_urlsafe(24), init=False, repr=False)

    def __enter__(self) -> LivePage:
        page = self

        class Handler(_Handler):
            live = page

        self._server = _Server((HOST, 0), Handler)
        serve = threading.Thread(target=self._server.serve_forever, args=(_POLL,), daemon=True)
        serve.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        """Port on which the page is served."""
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """URL of the page for a browser."""
        return f"http://{HOST}:{self.port}/{self._token}/"

    def step(self, row: Mapping[str, Any]) -> None:
        """Add a history row, which replaces rows of the same and later steps."""
        while self.rows and self.rows[-1]["step"] >= row["step"]:
            self.rows.pop()
        self.rows.append(dict(row))

    def follow(self, progress: Progress) -> None:
        """Store the words on what decoded sums have revealed so far; "" if there are no sums."""
        self.told = "" if progress.released is None else progress.released.words

    def answer(self, path: str, host: str) -> tuple[str, bytes] | None:
        """Type and content for a request path; None for all but two paths."""
        hosts = (f"{HOST}:{self.port}", f"localhost:{self.port}")
        known = {f"/{self._token}/": self._page, f"/{self._token}/rows": self._state}
        asked = path.encode("utf-8", "replace")
        for own, content in known.items():
            if hmac.compare_digest(asked, own.encode()) and host in hosts:
                return content()
        return None

    def _record(self) -> Record:
        rows, config = list(self.rows), {"engine": self.engine}
        return Record(self.name, self.name, "", self.name, config, rows, [], None, {})

    def _page(self) -> tuple[str, bytes]:
        return "text/html; charset=utf-8", render_live(self._record(), self.title).encode()

    def _state(self) -> tuple[str, bytes]:
        record = self._record()
        shown = {}
        if record.rows:
            latest = {k: v for row in record.rows for k, v in row.items()}
            last = Record(**{**vars(record), "rows": [latest]})
            found = {name: figures.summed(last, name) for name in SUMMARY if name != "rounds"}
            found = {"rounds": len(record.rows), **found}
            shown = {k: [SUMMARY[k], value_text(v, k)] for k, v in found.items() if v is not None}
        drawn = figures.curves(record) if record.rows else None
        content = {"curves": drawn, "figures": shown, "told": self.told}
        text = json.dumps(content, allow_nan=False)
        return "application/json", text.encode()


class _Server(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """Ignore the error of a browser that disconnects."""


class _Handler(BaseHTTPRequestHandler):
    live: LivePage
    timeout = _IDLE
    server_version, sys_version = "securevfl", ""

    def do_GET(self) -> None:
        """Answer a request with the page, the rows as JSON, or 404."""
        found = self.live.answer(self.path, self.headers.get("Host", ""))
        kind, content = found or ("text/plain", b"")
        self.send_response(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write no request log among the run's lines."""
