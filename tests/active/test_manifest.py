"""Sessions of organisations sign with the identities of their manifest, which evidence names."""

import asyncio
import dataclasses
import re

from securevfl.active.judge import LieFoundError
from securevfl.engine.network import SERVER
from securevfl.engine.security.identity import Identity
from securevfl.protocols.coded_split.server import Server
from securevfl.runs.evidence import judged
from tests.runs.organisations.sessions import Meeting

OPTIONS = {"rounds": 2, "width": 2, "hidden": 4, "batch": 8, "degree": 1, "sum_budget": 0.0}
DIGITS = {"name": "digits", "options": {"parties": 4}}


async def taking_part(meeting):
    tasks = [meeting.take_part(n, patience=5.0) for n in meeting.parties]
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_a_lie_in_a_session_is_judged_by_its_manifest(tmp_path, monkeypatch):
    honest = Server.dealt

    def dealt(self, step):
        made = honest(self, step)
        shares = [one + one if j == 3 else one for j, one in enumerate(made.shares)]
        return dataclasses.replace(made, shares=shares)

    monkeypatch.setattr(Server, "dealt", dealt)
    options = OPTIONS | {"security": "covert"}
    meeting = Meeting(tmp_path / "s", "coded_split", 4, data=DIGITS, options=options)
    ended = asyncio.run(taking_part(meeting))
    [error] = [one for one in ended if isinstance(one, LieFoundError)]
    assert re.search(r"it is in .*party-3/evidence\.json", str(error))
    manifest = meeting.manifest
    for n in meeting.parties:
        manifest = manifest.signed(n, Identity.read(meeting.key(n)))
    manifest.write(tmp_path / "session.toml")
    path = meeting.folder / "party-3" / "evidence.json"
    assert '"signed_with": "identity of the manifest' in path.read_text()
    assert judged(path, tmp_path / "session.toml").party == SERVER
