"""One module or folder for each method; `securevfl.protocols.protocol` finds them."""

from __future__ import annotations

if __name__ != "securevfl.protocols":
    raise ImportError("import securevfl.protocols, not protocols")
