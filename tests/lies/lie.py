"""Parts of the table of lies: a lie, its gain in one run, and the size of that run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

Outcome = Literal["gains", "refused", "corrected", "nothing"]


@dataclass(frozen=True)
class Size:
    """Size of the runs.

    Attributes
    ----------
    rows : int
        Training rows of the data set.
    batch, width : int
        Samples of a batch, and width of an embedding.
    victims : int
        Clients that are attacked in turn, where one attack takes long.
    """

    rows: int
    batch: int
    width: int
    victims: int

    def data(self, parties: int) -> VerticalDataset:
        """Digits, the pixels dealt to so many parties."""
        return _digits(self.rows, parties)


@functools.cache
def _digits(rows: int, parties: int) -> VerticalDataset:
    from securevfl.data import load_dataset

    data: VerticalDataset = load_dataset("digits", parties=8)
    return data.subset(rows, 20).with_parties(parties)


SMALL = Size(rows=96, batch=32, width=32, victims=2)
FULL = Size(rows=1200, batch=128, width=64, victims=10)


@dataclass(frozen=True)
class Finding:
    """Gain of a liar in one run, beside the value that it has without the lie.

    Attributes
    ----------
    quantity : str
        What `value` and `control` measure.
    value : float or None
        With the lie. None where the liar got nothing that could be measured.
    control : float
        The same of an honest run, or by a guess.
    noticed : str
        Who noticed, and how. "nobody" where no party recorded an event and the run went on.
    sign : {-1, 1}
        1 where more is a gain, as of the share of what was read; -1 of an error.
    corrected : bool
        Whether the value is what it is because the receiver put right what was wrong.
    """

    quantity: str
    value: float | None
    control: float
    noticed: str
    sign: int = 1
    corrected: bool = False

    @property
    def gained(self) -> bool:
        """Whether the value is better for the liar than the control, by more than chance."""
        if self.value is None:
            return False
        if self.sign < 0:
            return self.value < self.control / 2
        return self.value > 1.01 * self.control + 1e-9

    @property
    def outcome(self) -> Outcome:
        """One word: what became of the lie."""
        if self.gained:
            return "gains"
        if self.corrected:
            return "corrected"
        return "nothing" if self.noticed == "nobody" else "refused"


@dataclass(frozen=True)
class Lie:
    """One deviation of one party, or of a few that pool, and how to measure what it gains.

    Attributes
    ----------
    name : str
    protocol : str
        Name of the protocol, with the options that matter.
    who : str
        The liar.
    does : str
        The lie, in a few words.
    limit : str
        What stops or limits it today.
    expected : str
        The outcome that is documented.
    measure : callable
        Runs it at a size.
    """

    name: str
    protocol: str
    who: str
    does: str
    limit: str
    expected: Outcome
    measure: Callable[[Size], Finding]
