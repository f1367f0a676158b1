"""Origin of a data set: source, licence, split, scaling, partition and notes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class About:
    """Origin of a data set and its steps of preparation; reports show all of it.

    Parameters
    ----------
    origin : str
        Source, with its address or file.
    licence : str
        Licence of the data, as far as stated.
    split : str
        Choice of the test rows.
    scaling : str
        Scaling of the features.
    partition : str
        Division of the columns among the parties.
    notes : tuple of str
        Encoding, filling, dropped rows or columns, and everything else a reader must know.
    """

    origin: str
    licence: str
    split: str
    scaling: str
    partition: str
    notes: tuple[str, ...] = ()
