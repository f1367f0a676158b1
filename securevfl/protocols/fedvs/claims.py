"""Claims of FedVS, by the options of a run."""

from __future__ import annotations

from securevfl.privacy.claims import SUMS, Claim

SHARES = (
    Claim("T clients", "features", "perfect", "Theorem 5.2, over the shares; not over dL/dH"),
    Claim("T clients", "model", "perfect", "Theorem 5.2, over the shares; not over dL/dH"),
)
_MASKED = (
    "masked evaluation, given the decoded sums, by an ideal function of keys that were drawn for "
    "this run and that no T clients hold all of (docs/masking.md)"
)
MASKED = tuple(
    Claim(who, about, "perfect", _MASKED, given=(SUMS,))
    for who in ("server", "server + T clients")
    for about in ("features", "model")
)
PLAIN = (
    Claim("server", "features", "none", "plain evaluation shows it all of psi, not only the sums"),
    Claim("server", "model", "none", "plain evaluation shows it all of psi, not only the sums"),
    Claim("server + T clients", "features", "none", "recovered by linear algebra"),
    Claim("server + T clients", "model", "none", "recovered by linear algebra"),
)
# Theorem 5.3 is about the upload of one client; the paper's conclusion is about all of them.
PAPER = tuple(
    Claim(who, about, "perfect", source)
    for who, source in (
        ("T uploads", "Theorem 5.3 as it stands, for T uploads in all rounds together"),
        ("server", "Theorem 5.3 read over all uploads: no more than the decoded sums"),
        ("server + T clients", "section 2's curious server and colluding clients, pooled"),
    )
    for about in ("features", "model")
)
UNPROTECTED = (Claim("client", "labels", "none", "dL/dH depends on them"),)
