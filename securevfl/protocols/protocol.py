"""Stable import path for everything that authors of protocols need.

The parts lie in `securevfl.protocols.base`. A protocol is one module with one concrete subclass of
`Protocol`: its card, its options, and the parties it needs. Modules of `securevfl.protocols` are
found by themselves; those of others by the entry-point group ``securevfl.protocols``, whose entries
name such a class.
"""

from __future__ import annotations

from securevfl.protocols.base.card import Absence, Card, Exposure
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import (
    SELF,
    MessageKey,
    MessageSpec,
    announcement,
    in_rounds,
    in_setup,
)
from securevfl.protocols.base.options import EmbeddingConfig, SegmentedConfig, TrainingConfig
from securevfl.protocols.base.protocol import Part, Protocol
from securevfl.protocols.base.registry import find_protocols, get_protocol, make_config
from securevfl.protocols.base.schedule import Outline, Phase, Post, Shape, Stage, hollow
from securevfl.protocols.base.split import SplitProtocol
from securevfl.protocols.base.summed_parties import (
    SummedClient,
    SummedConfig,
    SummedEmbeddings,
    SummedServer,
)

__all__ = [
    "SELF",
    "Absence",
    "Card",
    "EmbeddingConfig",
    "EmbeddingProtocol",
    "Exposure",
    "MessageKey",
    "MessageSpec",
    "Outline",
    "Part",
    "Phase",
    "Post",
    "Protocol",
    "SegmentedConfig",
    "Shape",
    "SplitProtocol",
    "Stage",
    "SummedClient",
    "SummedConfig",
    "SummedEmbeddings",
    "SummedServer",
    "TrainingConfig",
    "announcement",
    "find_protocols",
    "get_protocol",
    "hollow",
    "in_rounds",
    "in_setup",
    "make_config",
]
