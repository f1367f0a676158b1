"""Merkle trees of one depth: a root commits to one leaf for each of N parties.

The depth is exactly ceil(log2 N). With paths of arbitrary length a dealer could put several leaves
of one party under a root, and choose among them after the challenge, which depends on the root.
"""

from __future__ import annotations

from collections.abc import Sequence

from securevfl.active.statements import DIGEST, digest


def depth_of(parties: int) -> int:
    """Depth of the tree for `parties` parties: ceil(log2 N)."""
    return (parties - 1).bit_length()


def paths_of(leaves: Sequence[bytes]) -> tuple[bytes, list[tuple[bytes, ...]]]:
    """Root of the Merkle tree with these leaves, and the path of each, from the leaf upwards.

    Leaves are digests. The tree is padded to a power of two with values that are no known digest.
    """
    count = len(leaves)
    level = [*leaves, *[bytes(DIGEST)] * ((1 << depth_of(count)) - count)]
    paths: list[list[bytes]] = [[] for _ in leaves]
    for height in range(depth_of(count)):
        for j, path in enumerate(paths):
            path.append(level[(j >> height) ^ 1])
        level = [_node(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return level[0], [tuple(path) for path in paths]


def root_of(leaf: bytes, place: int, path: Sequence[bytes], parties: int) -> bytes | None:
    """Merkle root computed from a party's leaf and path; None for a path of wrong length."""
    if len(path) != depth_of(parties) or any(len(one) != DIGEST for one in path):
        return None
    for sibling in path:
        leaf = _node(sibling, leaf) if place & 1 else _node(leaf, sibling)
        place >>= 1
    return leaf


def _node(left: bytes, right: bytes) -> bytes:
    return digest("node", left, right)
