"""Declaration of Multi-VFL: one line for each kind of message."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from securevfl.protocols.base.messages import (
    MessageSpec,
    announcement,
    last_word,
)


def messages_of(
    label_owners: Iterable[int], batch_of: Callable[[int], int], width: int, *, private: bool
) -> tuple[MessageSpec, ...]:
    """Every message of a run: the alignments, one under each label owner; then Algorithm 1.

    Parameters
    ----------
    label_owners : iterable of int
        Numbers of the label owners.
    batch_of : callable
        Function from a label owner to the number of rows of its batch.
    width : int
        Width h of the activations.
    private : bool
        Whether samples are aligned by private set intersection.
    """
    return (
        *(one for k in label_owners for one in alignment_messages(k, private=private)),
        announcement("label_owner", carries="weights", source="ServerAggregation, line 8"),
        MessageSpec("request", "label_owner", "client", "control", source="line 3: the batch"),
        MessageSpec(
            *("embedding", "client", "label_owner", "embedding"),
            shape=lambda key: (batch_of(key.receiver), width),
            dtype="float32",
            row_by_row=True,
            source="DataOwnerUpdate, line 6: A_{d,k}",
        ),
        MessageSpec(
            *("gradient", "label_owner", "client", "gradient"),
            shape=lambda key: (batch_of(key.sender), width),
            dtype="float32",
            row_by_row=True,
            source="line 8: dA_{d,k}",
        ),
        MessageSpec("weights", "label_owner", "server", "weights", source="lines 9 and 10: W^S_k"),
        last_word(),
    )


def alignment_messages(leader: int, *, private: bool) -> tuple[MessageSpec, ...]:
    """Messages of `align` under a label owner, of which all data owners are members."""
    name = f"psi {leader}" if private else f"ids {leader}"
    member, head = "client", "label_owner"
    pairs = [(member, member), (member, head), (head, member)]
    if not private:
        links = [(name, head, member), (f"{name} held", member, head)]
        links.append((f"{name} common", head, member))
    else:  # the leader compares its set with that of each other member
        told = ("keys", "matrix", "opening", "more", "common", "places")
        links = [(f"{name} {one}", head, member) for one in told]
        answers = ("choices", "challenge", "values", "more")
        links += [(f"{name} {one}", member, head) for one in answers]
        links += [(f"{name} rows", *ends) for ends in pairs]
    return tuple(MessageSpec(*link, "identifier", source="setup") for link in links)
