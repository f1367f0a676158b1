"""Descriptions of the trained models of a run, one for each party.

A client's description contains the architecture of its network and the preprocessing of its
columns. The server's contains the server model, the classes, and the rule that joins embeddings.
Each is a file in the run's folder, such as ``party-0.json``. With the weights in ``model.npz`` they
restore the models without the training data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from securevfl.data.base.class_values import stored_classes
from securevfl.engine.network import SERVER
from securevfl.errors import CheckpointError
from securevfl.models.aggregation import make_aggregation
from securevfl.models.client_networks import TorchNetwork
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.models.split import Centre
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.split import SplitProtocol
from securevfl.reading import NOT_PARSED
from securevfl.runs.folders.stored import FORMAT, About, check_description
from securevfl.verified import Provable, bare_of

if TYPE_CHECKING:
    from securevfl.engine.party import Party


def file_of(party: int) -> str:
    """File of a party's description in a run's folder."""
    return "server.json" if party == SERVER else f"party-{party}.json"


def described(protocol: Protocol, parties: Mapping[int, Party]) -> dict[int, About]:
    """Descriptions of all parties and their trained models, in JSON types, by party number."""
    plain, own = _is_plain(protocol, parties), set(_with_columns(protocol))
    found = {SERVER: _about_server(protocol, parties, plain)}
    for n in sorted({*parties} - {SERVER}):  # helpers have no columns, nor have hosts of DVFL, say
        about = _about_client(protocol, n, plain) if n in own else _about_helper(protocol, n)
        found[n] = about
    return found


def write_descriptions(folder: Path, protocol: Protocol, parties: Mapping[int, Party]) -> None:
    """Write each party's description to a file of its own in `folder`, mode 0600."""
    for party, about in described(protocol, parties).items():
        path = folder / file_of(party)
        path.touch(mode=0o600)  # names and ranges of columns
        path.write_text(json.dumps(about) + "\n")


def read_descriptions(folder: Path) -> dict[int, About]:
    """Descriptions of the parties' models in a run's folder, by party number from -1; or empty.

    CheckpointError if a file is damaged.
    """
    found: dict[int, About] = {}
    while (path := folder / file_of(len(found) - 1)).is_file():
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(about, dict) or about.get("format") != FORMAT:
                raise CheckpointError(f"load: {path} is damaged, or of another version")
            check_description(about)
        except NOT_PARSED as error:
            raise CheckpointError(f"load: {path} is damaged: {error}") from None
        found[len(found) - 1] = about
    return found


def own_arrays(arrays: Mapping[str, np.ndarray], party: int) -> dict[str, np.ndarray]:
    """Arrays of a party among those of `Run.models`, without the prefix, such as "client-0/"."""
    prefix = "server/" if party == SERVER else f"client-{party}/"
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _with_columns(protocol: Protocol) -> list[int]:
    """Clients that have columns; helpers have none."""
    return [n for n in protocol.peers() if n < protocol.data.parties]


def _is_plain(protocol: Protocol, parties: Mapping[int, Party]) -> bool:
    """Whether scores are those of the server model on the clients' joined embeddings."""
    kind = type(protocol)
    # Provable's own takes the protection off the parties' models, and calls the next class's.
    scores = next(vars(c)["scores"] for c in kind.mro() if "scores" in vars(c) and c != Provable)
    return (
        scores in (SplitProtocol.scores, EmbeddingProtocol.scores)
        and kind.embed is Protocol.embed
        and isinstance(_model(parties[SERVER], "centre"), Centre)
        and all(
            isinstance(_model(parties[n], "network"), (PolynomialNetwork, TorchNetwork))
            for n in protocol.peers()
        )
    )


def _model(party: Party, name: str) -> object:
    return bare_of(getattr(party, name, None))


def _about_client(protocol: Protocol, n: int, plain: bool) -> About:
    data, config = protocol.data, protocol.config
    shapes = data.party_image_shapes
    network = None
    if plain:
        coded = data.cardinalities[n]
        network = {
            "kind": getattr(config, "client", "pn"),
            "features": data.widths[n],
            "width": config.width,
            "depth": config.degree,
            "image_shape": None if shapes is None else list(shapes[n]),
            "cardinalities": list(coded) if any(coded) else [],
            "embedding": getattr(config, "embedding", 8),
            "layers": list(config.hidden_layers()) if hasattr(config, "hidden_layers") else [],
            "own": getattr(config, "own_client", ""),
        }
    return {
        "format": FORMAT,
        "role": "client",
        "protocol": protocol.name,
        "party": n,
        "name": data.party_names[n],
        "network": network,
        "preprocessing": data.transform.parties[n].to_json(),
        **_ids(protocol),
    }


def _ids(protocol: Protocol) -> dict[str, str]:
    """Name of the id column that joined the training rows; empty if there was none."""
    column = protocol.data.transform.id_column
    return {} if column is None else {"id_column": column}


def _about_helper(protocol: Protocol, n: int) -> About:
    """Description of a helper: a party without columns."""
    common = {"format": FORMAT, "role": "client", "protocol": protocol.name, "party": n}
    return common | {"name": f"party {n}", "network": None, "preprocessing": None}


def _about_server(protocol: Protocol, parties: Mapping[int, Party], plain: bool) -> About:
    data, config = protocol.data, protocol.config
    network, evaluated, rule = None, list(protocol.peers()), getattr(config, "aggregation", "mean")
    if plain:
        joined = make_aggregation(rule, data.parties).width(config.width)
        network = {
            "name": config.centre,
            "width": joined,
            "hidden": config.hidden,
            "outputs": data.num_classes if data.task == "multiclass" else 1,
            "own": config.own_centre,
        }
        if isinstance(protocol, EmbeddingProtocol):
            evaluated = [int(n) for n in protocol.evaluated(parties)]
    return {
        "format": FORMAT,
        "role": "server",
        "protocol": protocol.name,
        "parties": data.parties,
        "task": data.task,
        "classes": list(data.classes),
        "class_values": stored_classes(data.class_values) if data.classes else None,
        **_ids(protocol),
        "aggregation": rule,
        "evaluated": evaluated,
        "network": network,
    }
