"""The run of a configuration itself, to be made in a process beside the one that judges.

All rows and rounds take as long as everything else of a verification together, and only the last
verifiers ask for them. The process makes what `Subject` would make, in this order: the run that is
held against the declaration, its traffic with other columns and networks, and the names of what is
not as it was given. It imports the library from the same files; the judge looks at its own as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from securevfl.audit.following.given import Given
from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.traffic import with_other_columns
from securevfl.data.dataset import VerticalDataset
from securevfl.data.source import DataSource
from securevfl.models.user_code import allow_options
from securevfl.protocols.base.registry import get_protocol, make_config


@dataclass(frozen=True)
class WholeRun:
    """Run of a configuration, from what any process can make it of.

    Attributes
    ----------
    protocol : str
    data : VerticalDataset or DataSource
    options : mapping
    seed : int
    """

    protocol: str
    data: VerticalDataset | DataSource
    options: Mapping[str, Any]
    seed: int

    def __call__(self, progress: Callable[[str], None]) -> Iterator[tuple[str, Any]]:
        """Make what a `Subject` asks for by these names, in this order.

        "followed", a `Followed`; "traffic", a `Traffic`; "changed" and "altered", lists of str.
        """
        allow_options(self.options)
        data = self.data.load() if isinstance(self.data, DataSource) else self.data
        cls = get_protocol(self.protocol)
        config = make_config(cls, self.options)
        given = Given.of(config, data, self.seed)
        made = cls(config, data, seed=self.seed)
        subject = Subject(
            made, seed=self.seed, progress=progress, whole=True, given=given, settings=lambda _: ()
        )
        (found,) = subject.settings
        yield "followed", found
        yield "traffic", with_other_columns(subject, found)
        yield "changed", subject.changed()
        yield "altered", subject.altered
