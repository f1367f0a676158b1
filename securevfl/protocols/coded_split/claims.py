"""Claims of coded split learning, by the options of a run."""

from __future__ import annotations

from securevfl.privacy.claims import Asset, Claim

_ASSETS: tuple[Asset, ...] = ("features", "model", "labels")
_VIEW = "Theorem 1 (docs/coded-split.md) with ideal PRF, seeds and links"
_SUMS = (
    f"{_VIEW}, given the sums. They tell the Gram matrix of the rows after about d/h epochs, hence "
    "the rows up to a rotation of the columns, and nearly independent columns themselves"
)
HOLDERS = tuple(Claim("T clients", asset, "perfect", f"{_VIEW} (a)") for asset in _ASSETS)
SERVER = tuple(
    Claim(who, asset, "perfect", f"{_SUMS} (b)", given=("decoded sums",))
    for who in ("server", "server + T clients")
    for asset in _ASSETS[:2]
)
RELEASED = (
    *HOLDERS[:2],
    Claim("client", "labels", "none", "released models give an owner X_n^T A, so labels"),
)


def claims_of(*, release: bool) -> tuple[Claim, ...]:
    """Claims of a configuration."""
    return (RELEASED if release else HOLDERS) + SERVER
