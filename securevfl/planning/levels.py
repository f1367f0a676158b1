"""Cost of a protocol's security levels: bytes, messages, and tolerated stragglers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from securevfl.errors import ConfigurationError
from securevfl.planning.message_bytes import sent_bytes, sent_messages
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import levels_of as levels_of_protocol
from securevfl.protocols.base.registry import make_config
from securevfl.protocols.base.schedule import Shape, Stage


@dataclass(frozen=True)
class Level:
    """Cost of a run at one security level.

    Attributes
    ----------
    name : str
        Value of `--security`.
    setup_bytes, round_bytes, bytes : int
        Bytes that all parties send in set-up, on average in a round, and in the whole run.
    messages : int
        Number of messages of the whole run.
    tolerated : int
        Number of late uploads that a round tolerates.
    refused : str
        Reason why such a run is refused; empty if it is not.
    """

    name: str
    setup_bytes: int = 0
    round_bytes: int = 0
    bytes: int = 0
    messages: int = 0
    tolerated: int = 0
    refused: str = ""


def levels_of(
    cls: type[Protocol], shape: Shape, options: Mapping[str, Any], *, sealed: bool
) -> tuple[Level, ...]:
    """Cost of each level of option "security", others as given; empty if there is only one."""
    names = levels_of_protocol(cls) if "security" in cls.Config.model_fields else ()
    return tuple(_level(cls, shape, {**options, "security": name}, sealed) for name in names)


def _level(cls: type[Protocol], shape: Shape, options: dict[str, Any], sealed: bool) -> Level:
    name = options["security"]
    try:
        config = cls.settled(make_config(cls, options), shape)
        cls.check_parties(config, len(shape.widths))
        outline = cls.outline(config, shape)
    except ConfigurationError as error:
        return Level(name, refused=str(error))
    if outline is None:
        return Level(name, refused=f"{cls.name}: there is no forecast at this level")
    N, rounds = len(shape.widths) + getattr(config, "helpers", 0), outline.phases[0].rounds
    sent, stages = sent_bytes(outline, N, sealed=sealed), outline.phases[0].stages
    return Level(
        name,
        setup_bytes=sum(sent.setup.values()),
        round_bytes=round(sum(sent.training.values()) / rounds),
        bytes=sum(sent.total.values()),
        messages=sent_messages(outline, N),
        tolerated=min(map(partial(Stage.forgiven, parties=N), filter(_waits, stages))),
    )


def _waits(stage: Stage) -> bool:
    """Whether a stage waits for any `count` of all clients, and not for shares of models."""
    whole = all(post.first is None for post in stage.posts)
    return bool(stage.count) and stage.activity != "share" and whole
