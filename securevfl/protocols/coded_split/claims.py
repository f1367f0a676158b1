"""Claims of coded split learning, by the options of a run."""

from __future__ import annotations

from securevfl.privacy.claims import SUMS, Asset, Claim

_ASSETS: tuple[Asset, ...] = ("features", "model", "labels")
_VIEWS = (
    "Theorem 1 (docs/coded-split-proof.md), with ideal PRF and links, given when training ends; "
    "that tells of labels where it diverges"
)
_SUMS = "Theorem 2 (docs/coded-split-proof.md), given the sums"
_RELEASED = "given the released models (docs/coded-split-proof.md)"
HOLDERS = tuple(Claim("T clients", asset, "perfect", _VIEWS) for asset in _ASSETS)
SERVER = tuple(
    Claim(who, asset, "perfect", _SUMS, given=(SUMS,))
    for who in ("server", "server + T clients")
    for asset in _ASSETS[:2]
)
# W_n tells its owner X_n^T A, and A depends on everybody's data: nothing holds without them given.
RELEASED = (
    *(
        Claim("T clients", asset, "perfect", _RELEASED, given=("released models",))
        for asset in _ASSETS[:2]
    ),
    Claim("client", "labels", "none", "released models give an owner X_n^T A, so labels"),
)


def claims_of(*, release: bool) -> tuple[Claim, ...]:
    """Privacy claims; `release`: owners get their own models at the end, so T clients have some."""
    return (RELEASED if release else HOLDERS) + SERVER
