"""Protocols of others that are made of the library's, and claim or declare for themselves."""

from __future__ import annotations

from typing import Any

from securevfl.privacy.claims import Claim
from securevfl.protocols.split import Split
from tests.zoo.planting import ACCUSED, Leak

PLAIN = (("server", "features"),)


class SplitNoisy(Split):
    """Split learning with a claim of differential privacy, and no noise."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One of them is false."""
        hidden = Claim("server", "features", "differential", "(1, 1e-5) by rounding to float32")
        return (hidden, *super().claims[1:])


def _claims(*pair: str) -> Any:
    """A test that a run's protocol claims something of a pair."""
    return lambda outcome: any(
        (one.who, one.about) == pair and one.notion != "none" for one in outcome.protocol.claims
    )


def _leak(protocol: str, name: str, cause: str, says: str, cls: Any, breaks: Any, shows: Any,
          options: Any = None) -> Leak:  # fmt: skip
    return Leak(f"{protocol}: {name}", protocol, cause, says, lambda: cls, breaks, options or {},
                ACCUSED, shows)  # fmt: skip


_CLAIM = "a claim that the protocol does not keep"

LEAKS = (
    _leak(
        "split",
        "a claim of differential privacy without noise",
        _CLAIM,
        "A subclass claims that embeddings in the clear are differentially private.",
        SplitNoisy,
        PLAIN,
        _claims(*PLAIN[0]),
    ),
)
