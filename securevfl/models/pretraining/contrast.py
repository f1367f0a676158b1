"""Contrastive losses on two views of the same samples, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def info_nce(anchors: Tensor, positives: Tensor, temperature: float) -> Tensor:
    """InfoNCE: mean -log softmax of each anchor's similarity to its positive among all positives.

    van den Oord, Li, Vinyals 2018, equation (4), with cosine similarities, as SCARF uses it
    (Bahri, Jiang, Tay, Metzler 2022, Algorithm 1).

    Parameters
    ----------
    anchors, positives : Tensor, shape (B, d)
        Row i of both belongs to one sample.
    temperature : float
        tau > 0, by which similarities are divided.

    Returns
    -------
    Tensor, shape ()
    """
    import torch
    from torch.nn import functional

    one, two = functional.normalize(anchors, dim=1), functional.normalize(positives, dim=1)
    similarities = one @ two.T / temperature
    return functional.cross_entropy(similarities, torch.arange(len(one)))


def nt_xent(one: Tensor, two: Tensor, temperature: float) -> Tensor:
    """SimCLR's normalised temperature-scaled cross entropy over the 2B views.

    Chen, Kornblith, Norouzi, Hinton 2020, equation (1): for each view, mean -log softmax of its
    similarity to the other view of the sample among all 2B - 1 other views.

    Parameters
    ----------
    one, two : Tensor, shape (B, d)
        Two views of the same samples.
    temperature : float
        Temperature tau > 0.

    Returns
    -------
    Tensor, shape ()
    """
    import torch
    from torch.nn import functional

    views = functional.normalize(torch.cat([one, two]), dim=1)
    # e^-inf = 0 leaves a view's similarity to itself out of its softmax.
    similarities = (views @ views.T / temperature).fill_diagonal_(-torch.inf)
    rows = len(one)
    partners = torch.cat([torch.arange(rows, 2 * rows), torch.arange(rows)])
    return functional.cross_entropy(similarities, partners)
