"""Options of runs on a Ray cluster: its address, and the parties' places and keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from securevfl.engine.cluster import ANSWER
from securevfl.runs.options import option
from securevfl.runs.spec import RUN

if TYPE_CHECKING:
    from securevfl.engine.security.identity import Manifest


class ClusterOptions(BaseModel):
    """Options of a cluster: places and keys of parties; none changes what they compute."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str | None = option(
        None, metavar="HOST:PORT", panel=RUN, folded=True, commands="resume",
        default_text="a new one on this machine",
        help="Address of a running Ray cluster.",
    )  # fmt: skip
    place: Mapping[int, str] | None = option(
        None, metavar="PARTY=RESOURCE", panel=RUN, folded=True, commands="resume",
        default_text="any node",
        accepts="mapping of int to str",
        help="Ray resource that the node of a party must have, such as party-3=node-b or "
        "server=node-a. In Python a mapping, with -1 for the server.",
    )  # fmt: skip
    manifest: Path | None = option(
        None, metavar="FILE.toml", panel=RUN, folded=True, commands="resume",
        default_text="the driver introduces the parties, and is trusted with it",
        help="List of those who take part, signed by all (`securevfl keys`).",
    )  # fmt: skip
    keys: Path | None = option(
        None, metavar="FOLDER", panel=RUN, folded=True, commands="resume", default_text="new keys",
        help="Folder of key files, server.key and party-0.key, on each party's own machine.",
    )  # fmt: skip
    answer_timeout: float | None = option(
        None, gt=0, metavar="SECONDS", panel=RUN, folded=True, commands="resume",
        default_text=f"{ANSWER:g}",
        help="Real seconds in which a party must answer the driver, its longest computation "
        "included; ten times as many before its first round. One that does not is taken as down, "
        "ended, and started again from its checkpoint.",
    )  # fmt: skip

    def signed_manifest(self) -> Manifest | None:
        """Content of the manifest, if there is one."""
        from securevfl.engine.security.identity import Manifest

        return None if self.manifest is None else Manifest.read(self.manifest)

    def answer(self) -> float:
        """Seconds within which a party must answer."""
        return ANSWER if self.answer_timeout is None else self.answer_timeout

    def key_folder(self) -> str | None:
        """Absolute path of the folder of keys, if there is one."""
        return None if self.keys is None else str(self.keys.absolute())
