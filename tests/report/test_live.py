"""The live page: true to the rows, for this computer only, and gone with the run."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from securevfl.cli import displays
from securevfl.cli.app import app
from securevfl.privacy.released_equations import Odometer
from securevfl.report.live import HOST, LivePage
from securevfl.runs.history import Progress
from tests.cli.calls import SMALL

ROWS = [
    {"step": 1, "time": 1.0, "loss": 2.0, "bytes": 10, "accuracy": 0.25, "test_loss": 2.0},
    {"step": 2, "time": 2.5, "loss": float("nan"), "bytes": 30},
]


def asked(page: LivePage, path: str, host: str | None = None) -> tuple[int, bytes]:
    link = http.client.HTTPConnection(HOST, page.port, timeout=20)
    link.request("GET", path, headers={} if host is None else {"Host": host})
    answer = link.getresponse()
    return answer.status, answer.read()


@pytest.fixture
def page():
    with LivePage("fedvs", "fedvs on <digits>") as made:
        yield made


def path(page: LivePage) -> str:
    return urlsplit(page.address).path


def test_rows_are_served_as_they_come(page):
    assert json.loads(asked(page, path(page) + "rows")[1])["curves"] is None
    for row in ROWS:
        page.step(row)
    found = json.loads(asked(page, path(page) + "rows")[1])
    assert found["curves"]["loss"] == [2.0, None]
    assert found["curves"]["time"] == [1.0, 2.5]
    assert found["figures"]["rounds"] == ["rounds", "2"]
    assert found["figures"]["test_accuracy"] == ["test accuracy", "25.00 %"]


def test_what_sums_told_is_served(page):
    page.step(ROWS[0])
    assert json.loads(asked(page, path(page) + "rows")[1])["told"] == ""
    told = Odometer(4, 13, 27, 6, 9, 10, budget=False)
    page.follow(Progress(1, 9, 0.2, None, 1.0, 5, 0, told))
    assert json.loads(asked(page, path(page) + "rows")[1])["told"] == told.words
    assert 'id="sums"' in asked(page, path(page))[1].decode()


def test_the_page_is_of_the_templates_of_the_report(page):
    status, content = asked(page, path(page))
    text = content.decode()
    assert status == 200
    assert "fedvs on &lt;digits&gt;" in text
    assert '<section id="curves">' in text
    assert "class Curves" in text


@pytest.mark.parametrize("wrong", ["/", "/rows", "/report/", "{}x", "{}../", "/%2e/", "{}rows?x"])
def test_without_the_secret_path_nothing_is_said(page, wrong):
    assert asked(page, wrong.format(path(page))) == (404, b"")


def test_the_path_has_192_bits_and_is_never_the_same(page):
    other = LivePage("fedvs", "x")
    assert other._token != page._token
    assert len(path(page).strip("/")) == 32


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1"])
def test_a_page_of_another_site_that_names_this_address_gets_nothing(page, host):
    assert asked(page, path(page), host) == (404, b"")


def test_other_methods_are_refused(page):
    link = http.client.HTTPConnection(HOST, page.port, timeout=20)
    link.request("POST", path(page), b"x")
    assert link.getresponse().status == 501


def test_it_listens_on_the_loopback_address_alone(page):
    import psutil

    listening = [one.laddr for one in psutil.Process().net_connections() if one.status == "LISTEN"]
    assert {one.ip for one in listening if one.port == page.port} == {"127.0.0.1"}


def test_it_ends_with_the_run():
    with LivePage("fedvs", "x") as page:
        port = page.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port), timeout=5)


def test_the_command_serves_the_rows_of_its_run(monkeypatch, tmp_path):
    seen: list[dict[str, Any]] = []

    class Watched(LivePage):
        def step(self, row):
            super().step(row)
            seen.append(json.loads(asked(self, urlsplit(self.address).path + "rows")[1]))

    monkeypatch.setattr("securevfl.report.live.LivePage", Watched)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["run", "split", *SMALL, "--live", "--out", "made"])
    assert done.exit_code == 0, done.output
    assert re.search(r"live page: http://127\.0\.0\.1:\d+/[\w-]{32}/\n", done.stderr)
    rows = [json.loads(line) for line in Path("made/history.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if row["event"] == "round"]
    assert seen[-1]["curves"]["loss"] == losses
    assert [len(one["curves"]["step"]) for one in seen] == [1, 2, 3, 4]


class Stopping(displays.Lines):
    """Progress that presses Ctrl-C in the third round."""

    def __call__(self, progress):
        super().__call__(progress)
        if progress.round == 3:
            signal.raise_signal(signal.SIGINT)


def test_a_run_that_goes_on_shows_its_earlier_steps_too(monkeypatch, tmp_path):
    seen: list[list[float]] = []

    class Watched(LivePage):
        def step(self, row):
            super().step(row)
            found = json.loads(asked(self, urlsplit(self.address).path + "rows")[1])
            seen.append(found["curves"]["loss"])

    monkeypatch.chdir(tmp_path)
    words = ["split", *SMALL[2:], "--rounds", "30", "--out", "made"]
    with monkeypatch.context() as patched:
        patched.setattr(displays, "progress_display", Stopping)
        assert CliRunner().invoke(app, ["run", *words]).exit_code == 130
    monkeypatch.setattr("securevfl.report.live.LivePage", Watched)
    done = CliRunner().invoke(app, ["resume", "made", "--live"])
    assert done.exit_code == 0, done.output
    assert "live page: http://127.0.0.1:" in done.stderr
    rows = [json.loads(line) for line in Path("made/history.jsonl").read_text().splitlines()]
    assert seen[-1] == [row["loss"] for row in rows if row["event"] == "round"]
    assert len(seen[-1]) == 30
    again = CliRunner().invoke(app, ["resume", "made", "--live"])
    assert again.exit_code == 2
    assert "is complete; nothing is left to do" in again.stderr


def test_a_step_that_is_made_again_takes_the_place_of_the_earlier_one(page):
    for step, loss in [(1, 0.5), (2, 0.4), (3, 0.3), (2, 0.25)]:
        page.step({"step": step, "time": float(step), "loss": loss, "bytes": 1})
    assert [row["loss"] for row in page.rows] == [0.5, 0.25]
