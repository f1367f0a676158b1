"""Warning of what sums of embeddings tell whoever decodes them: no claim speaks of it."""

from __future__ import annotations


def told_by_sums(columns: int, width: int) -> str:
    """Warning where sums of a row are enough equations for its columns; empty where they are not.

    Parameters
    ----------
    columns : int
        Of all parties together.
    width : int
        h, numbers of an embedding.
    """
    if columns > width:
        return ""
    return (
        f"the sums of each row, which the server learns, are h = {width} equations in {columns} "
        "columns. A server that knows the clients' weights solves them for the rows, and with SGD "
        "it learns all inner products of rows from its own gradients. A lower width gives fewer "
        "equations; more rounds give more, and with enough of them the space that all columns span "
        "is known at any width. `securevfl compare` with --attacks measures it, SECURITY.md says "
        "more"
    )
