"""`VerticalDataset`: rows that several parties share, columns that each owns alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from securevfl.data.base.checks import RowChoice, row_numbers
from securevfl.data.base.content import Features
from securevfl.data.base.origin import About
from securevfl.data.base.partition import Positions, divide_columns, divide_images, shuffled
from securevfl.data.builders.arrays import FromArrays
from securevfl.data.builders.files import FromFiles
from securevfl.data.builders.frames import FromFrames
from securevfl.errors import DataError

_TOGETHER = 3  # training rows in a row that stay together when some are held back


class VerticalDataset(FromArrays, FromFrames, FromFiles):
    """Aligned rows whose columns belong to several parties, and the labels of one of them.

    All arrays are C-contiguous, read-only and finite; the constructor checks them.

    Parameters
    ----------
    name : str
        Name of the data set.
    task : {"binary", "multiclass", "regression"}
        Learning task of the labels.
    train, test : tuple of ndarray of float32
        One (M, d_n) and one (M_test, d_n) array per party.
    train_labels, test_labels : ndarray
        int64 class numbers 0 to C - 1, shape (M,) and (M_test,); float32 for a regression.
    classes : tuple of str
        Names of the classes in order; () for a regression.
    columns : tuple of tuple of str
        Names of each party's columns after encoding.
    party_names : tuple of str
        One name per party.
    about : About
        Origin, licence, split, scaling and notes.
    transform : Preprocessor
        Encoding and scaling fitted on the training rows, for application to new raw rows.
    image_shape : (channels, height, width), optional
        Shape of the whole image whose pixels are the source columns.
    strips : {"rows", "columns"}, optional
        Way in which `with_parties` divides images into strips; None divides single pixels.
    alone : tuple of ndarray of float32
        Unaligned training rows, which only one party has: one (m_n, d_n) array per party, or () if
        there are none (`securevfl.data.overlap.limit_overlap`).
    alone_labels : ndarray, optional
        Labels of ``alone[0]``, if party 0 has any.
    class_values : ndarray, optional
        The classes in order, (C,), in the user's values and type, which predictions return. By
        default the texts of `classes`.
    train_weights : ndarray, optional
        Weights of the training rows in the loss, (M,), each above 0. Only the label party has them;
        scaling and trees ignore them, and methods that cannot use them refuse them.

    Raises
    ------
    DataError
        If shapes do not match, values are NaN or infinite, or a party is empty.
    """

    def __repr__(self) -> str:
        target = f"{self.num_classes} classes" if self.classes else "regression"
        alone = ", alone " + str(tuple(map(len, self.alone))) if self.alone else ""
        return (
            f"VerticalDataset({self.name!r}, {target}, {self.parties} parties, "
            f"{self.rows} + {self.test_rows} rows, widths {self.widths}{alone})"
        )

    def with_parties(self, parties: int) -> VerticalDataset:
        """The same source columns, in the same order, divided among another number of parties.

        Image strips stay strips; other columns are divided as `numpy.array_split` does. Encoding
        and scaling are kept, so only the owners of values change.

        Parameters
        ----------
        parties : int
            1 to the number of source columns (of pixel lines, for strips).

        Returns
        -------
        VerticalDataset
            The data set itself, if it already has that many parties.

        Raises
        ------
        DataError
            For a number out of range, and for a set with unaligned rows or columns of trees.
        """
        if parties == self.parties and not isinstance(parties, bool):
            return self
        if self.image_shape is not None and self.strips is not None:
            positions, rule = divide_images(self.image_shape, parties, self.strips)
        else:
            positions, rule = divide_columns(self.transform.columns, parties)
        return self._divided(positions, rule)

    def subset(self, rows: RowChoice, test_rows: RowChoice | None = None) -> VerticalDataset:
        """Keep some training rows, and optionally some test rows.

        The fitted scaling is kept.

        Parameters
        ----------
        rows : int, slice, array of int or array of bool
            Training rows to keep; an int n keeps the first n.
        test_rows : int, slice, array of int or array of bool, optional
            Test rows to keep; all by default.

        Raises
        ------
        DataError
            If no row is left, or a row does not exist.
        """
        chosen = row_numbers(rows, self.rows)
        tested = row_numbers(slice(None) if test_rows is None else test_rows, self.test_rows)
        return replace(
            self,
            train=tuple(array[chosen] for array in self.train),
            train_labels=self.train_labels[chosen],
            train_weights=None if self.train_weights is None else self.train_weights[chosen],
            test=self.test if test_rows is None else tuple(array[tested] for array in self.test),
            test_labels=self.test_labels[tested],
            about=self._noted(
                f"subset of {len(chosen)} of {self.rows} training and {len(tested)} of "
                f"{self.test_rows} test rows; the scaling is that of all training rows"
            ),
        )

    def hold_back(self, fraction: float, *, seed: int) -> VerticalDataset:
        """Replace the test rows by part of the training rows; the real test set stays unseen.

        For choices, such as a learning rate, that must not be made on test rows. Blocks of three
        consecutive rows stay together, because neighbours may be recordings of one person. The
        fitted scaling is kept.

        Parameters
        ----------
        fraction : float
            Fraction of the training rows, in (0, 1).
        seed : int
            Seed of the draw, 0 or more.

        Raises
        ------
        DataError
            If the fraction is out of range, or no row would be left on one side.
        """
        blocks = math.ceil(self.rows / _TOGETHER)
        number = isinstance(fraction, float | np.floating)
        count = round(fraction * blocks) if number and 0 < fraction < 1 else 0
        if not 0 < count < blocks:
            raise DataError(
                f"validation = {fraction!r} of {self.rows} training rows, {_TOGETHER} in a row "
                f"together: {count} of {blocks} groups would be held back; choose a fraction in "
                "(0, 1) that leaves some on both sides."
            )
        drawn = shuffled(blocks, seed, "validation")[:count]
        held = np.isin(np.arange(self.rows) // _TOGETHER, drawn)
        kept = self.subset(~held)
        rows = tuple(array[held] for array in self.train)
        return replace(kept, test=rows, test_labels=self.train_labels[held])

    def _divided(self, positions: Positions, rule: str) -> VerticalDataset:
        if self.alone:
            raise DataError(
                f"data set {self.name!r}: parties hold rows alone, so columns cannot be divided "
                f"anew; choose the parties first, then limit the overlap."
            )
        transform = self.transform.deal(positions)
        return replace(
            self,
            train=self._divided_arrays(self.train, positions),
            test=self._divided_arrays(self.test, positions),
            columns=tuple(part.encoded for part in transform.parties),
            party_names=tuple(f"party {n}" for n in range(len(positions))),
            transform=transform,
            about=replace(self.about, partition=rule),
        )

    def _divided_arrays(self, arrays: Features, positions: Positions) -> Features:
        where = self.transform.locations()
        bounds = [part.bounds for part in self.transform.parties]
        divided = []
        for wanted in positions:
            found = [where[position] for position in wanted]
            pieces = [arrays[p][:, bounds[p][k] : bounds[p][k + 1]] for p, k in found]
            divided.append(np.concatenate(pieces, axis=1))
        return tuple(divided)

    def _noted(self, note: str) -> About:
        return replace(self.about, notes=(*self.about.notes, note))
