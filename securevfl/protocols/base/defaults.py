"""Default protocols: of commands without a protocol, and of examples in help pages.

The packages above `protocols` find protocols by discovery and ask them for properties. Code that
needs a default takes it from here, so that no other module names a protocol.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Protocol of `plan`, `keys manifest`, the benchmarks and the scikit-learn classifier.
DEFAULT = "fedvs"

#: Protocols in the examples of help pages: the default one, its unprotected baseline, an
#: asynchronous one, and one that adds noise.
SHOWN: Mapping[str, str] = {
    "default": DEFAULT,
    "baseline": "split",
    "asynchronous": "vafl",
    "noisy": "wait_dp",
}
