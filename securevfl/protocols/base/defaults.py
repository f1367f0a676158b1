"""The protocols that are taken, and shown in help pages, where the user names none.

Everything above `protocols` finds protocols by discovery and asks them for properties. What has to
begin with one of them takes it from here, so that no other module names a protocol.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Protocol of `plan`, `keys manifest`, the benchmarks and the scikit-learn classifier.
DEFAULT = "fedvs"

#: Protocols in the examples of help pages: the default one, its unprotected baseline, one that
#: waits for nobody, and one that adds noise.
SHOWN: Mapping[str, str] = {
    "default": DEFAULT,
    "baseline": "split",
    "asynchronous": "vafl",
    "noisy": "wait_dp",
}
