"""Each party's model in a file of its own, and predictions from these files.

A file is a NumPy archive of arrays, read without pickle; its array ``about`` is JSON text. A
client's file has its network and the preprocessing of its raw columns. The server's file has the
server model, the names of the classes and the rule that joins embeddings. A file has nothing of
another party: no data, no column names, no widths.
"""

from __future__ import annotations

import functools
import io
import json
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.data.base.class_values import restored_classes
from securevfl.data.preparation.ids import refuse_other_rows
from securevfl.data.preparation.party_preprocessor import PartyPreprocessor
from securevfl.data.preparation.tables import as_frame
from securevfl.engine.network import SERVER
from securevfl.errors import ConfigurationError, DataError, SecureVFLWarning
from securevfl.models.aggregation import gather, make_aggregation
from securevfl.models.client_networks import make_client_network
from securevfl.models.polynomial_network import expand, expanded_width
from securevfl.models.scores import decided, probabilities
from securevfl.models.split import Centre
from securevfl.models.tensors import tensor
from securevfl.models.user_code import allow
from securevfl.protocols.base.protocol import Protocol
from securevfl.reading import NOT_PARSED, read_arrays
from securevfl.runs.embeddings import Embeddings, matched, named
from securevfl.runs.folders.checksums import read_summary
from securevfl.runs.folders.descriptions import described, own_arrays, read_descriptions
from securevfl.runs.folders.models import model_arrays
from securevfl.runs.folders.onnx_files import polynomial, write_onnx
from securevfl.runs.folders.stored import FORMAT, About, check_description
from securevfl.runs.storage import MODELS, SUMMARY
from securevfl.writing import write_durably

if TYPE_CHECKING:
    import pandas as pd
    from torch.nn import Module

    from securevfl.data.preparation.party_preprocessor import Table
    from securevfl.engine.party import Party

ABOUT = "about"
_AT_ONCE = 512  # rows through an exported network, to bound its memory
_UNUSED = {"name": "sgd", "lr": 1.0}  # an exported network is not trained
_OTHER = "model: the weights are not those of the network"


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """One party's exported model: description and weights.

    Attributes
    ----------
    about : mapping
        JSON types: ``role`` ("client" or "server"), ``protocol``, and further keys of the role.
    arrays : mapping of str to ndarray
        Weights by name.
    """

    about: About
    arrays: Mapping[str, np.ndarray] = field(repr=False)

    def save(self, path: Path) -> None:
        """Write the file completely or not at all, readable by its owner only (mode 0600)."""
        write_durably(path, self.to_bytes(), mode=0o600)

    def to_bytes(self) -> bytes:
        """Content of the file; equal models give equal bytes."""
        text = np.frombuffer(json.dumps(self.about).encode(), np.uint8)
        content: Any = {ABOUT: text, **self.arrays}
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **content)
        return buffer.getvalue()

    def _network(self) -> About:
        network: About | None = self.about["network"]
        if network is None:
            raise ConfigurationError(
                f"model: the models of {self.about['protocol']} are exported as arrays only; use "
                "`arrays`, or predict with the run itself, between organisations `party predict`"
            )
        return network

    def _weights(self, prefix: str) -> dict[str, np.ndarray]:
        """Arrays whose names start with `prefix`, by the rest; DataError if one is not finite."""
        found = {k[len(prefix) :]: v for k, v in self.arrays.items() if k.startswith(prefix)}
        for name, values in found.items():
            if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
                raise DataError(
                    f"model: the array {prefix}{name} ({values.dtype}, {values.shape}) is not of "
                    "finite numbers; the file is damaged, or training diverged"
                )
        return found

    def __getstate__(self) -> dict[str, object]:
        return {"about": self.about, "arrays": self.arrays}


class ClientModel(ExportedModel):
    """A client's network and the preprocessing of its columns."""

    @functools.cached_property
    def preprocessing(self) -> PartyPreprocessor:
        """Preprocessing that was fitted on the client's training rows."""
        return PartyPreprocessor.from_json(self.about["preprocessing"])

    @functools.cached_property
    def _module(self) -> Module:
        spec, weights = dict(self._network()), self._weights("network/module/")
        depth = len(spec["layers"]) + 1 if spec["layers"] else spec["depth"]
        if depth > len(weights) and not spec["own"]:
            raise DataError(f"{_OTHER}: {depth} layers are described")
        places = (spec.pop(name) for name in ("kind", "features", "width", "depth"))
        shape, positional = spec.pop("image_shape"), tuple(places)

        def make() -> Module:
            made: Any = make_client_network(
                *positional,
                image_shape=None if shape is None else tuple(shape),
                stream=np.random.Generator(np.random.Philox(0)),  # the weights are replaced
                optimizer=_UNUSED,
                **spec,
            )
            module: Module = made.module
            return module

        return _loaded(make, weights, own=bool(spec["own"]))

    @functools.cached_property
    def _polynomial(self) -> np.ndarray:
        """Weights of a polynomial network, (d D + 1, h) float64; DataError for another shape."""
        spec, weights = self._network(), self._weights("network/")
        shape = (expanded_width(spec["features"], spec["depth"]), spec["width"])
        if "weight" not in weights or weights["weight"].shape != shape:
            raise DataError(f"{_OTHER}, {shape}")
        return weights["weight"].astype(np.float64)

    def embed(self, rows: Table) -> np.ndarray | pd.DataFrame:
        """Embedding of raw rows of this party, (m, h) float64.

        Double precision: the other rows of a call change a row's result only by rounding.

        Parameters
        ----------
        rows : DataFrame, or array of shape (m, number of source columns)
            Raw rows of this party.

        Returns
        -------
        ndarray, or DataFrame with the ids as index
            The index has ids if the training rows were joined by an id column and these rows have
            that column; the server matches rows by id. The columns then say whose they are
            (``party_0_0``, ...): the server refuses those of another party.

        Raises
        ------
        DataError
            For missing columns, unusable values, missing or repeated ids, and damaged weights.
        ConfigurationError
            For a model exported as arrays only.
        """
        table = as_frame(rows)
        values, column = self.values(table), self.about.get("id_column")
        if column is None or column not in getattr(table, "columns", ()):
            return values
        return named(values, table, column, self.about["party"])

    def values(self, rows: Table) -> np.ndarray:
        """Embedding of raw rows, (m, h) float64, without ids; raises what `embed` raises."""
        told: list[str] = []
        features = self.preprocessing.apply(rows, told).astype(np.float64)
        for sentence in told:
            warnings.warn(sentence, SecureVFLWarning, stacklevel=2)
        spec = self._network()
        if spec["kind"] == "pn" and not spec["own"]:
            weight = self._polynomial  # which compares the depth before rows are expanded
            embedding: np.ndarray = expand(features, spec["depth"]) @ weight
            return embedding
        return _evaluated(self._module, features)

    def save_onnx(self, path: Path) -> Path:
        """Write the network as an ONNX file: ``columns``, (m, d_n) float32, to ``embedding``.

        The input is encoded and scaled columns, the result of ``preprocessing.apply``. The file
        does not contain that step, which encodes texts and fills missing values. ConfigurationError
        without the packages of the extra ``onnx``, and for models exported as arrays only.
        """
        spec = self._network()
        bare = spec["kind"] == "pn" and not spec["own"]
        module = polynomial(self._polynomial, spec["depth"]) if bare else self._module
        return write_onnx(module, spec["features"], path, ("columns", "embedding"))


class ServerModel(ExportedModel):
    """The server model, which computes scores from embeddings."""

    @functools.cached_property
    def _centre(self) -> Module:
        spec = self._network()

        def make() -> Module:
            centre = Centre(
                self.about["task"],
                spec["outputs"],
                spec["width"],
                network=spec["name"],
                hidden=spec["hidden"],
                optimizer=_UNUSED,
                seed=0,
                own=spec["own"],
                target=(0.0, 1.0) if "centre/network/target_mean" in self.arrays else None,
            )
            return centre.network

        return _loaded(make, self._weights("centre/network/"), own=bool(spec["own"]))

    def scores(self, embeddings: Embeddings) -> np.ndarray | pd.DataFrame:
        """Raw scores, (m, outputs) float64, of the clients' embeddings by party number.

        Returns
        -------
        ndarray, or DataFrame with the ids as index
            Embeddings with ids are matched by id, and rows that all parties have are scored, in the
            order of the first party. Without ids, row k of all parties is one row.

        Raises
        ------
        ConfigurationError
            If a party's embedding is missing, or the model was exported as arrays only.
        DataError
            If rows cannot be matched (`securevfl.runs.embeddings.matched`), numbers are not finite,
            or embeddings do not fit the server model.
        """
        import pandas as pd

        N, used = self.about["parties"], self.about["evaluated"]
        missing = [n for n in used if n not in embeddings]
        if missing:
            raise ConfigurationError(
                f"model: embeddings of {len(embeddings)} parties are there, and those of "
                f"{missing} are missing; the server model joins those of {used}"
            )
        rule = make_aggregation(self.about["aggregation"], N)
        values, ids = matched({n: embeddings[n] for n in used}, self.about.get("id_column"))
        for n, own in values.items():
            if not np.isfinite(own).all():
                row = int(np.argmin(np.isfinite(own).all(axis=1)))
                raise DataError(
                    f"model: the embedding of party {n} has a number in row {row} that is not "
                    "finite; ask that party to embed its rows again"
                )
        joint, width = rule.combine(*gather(values, N)), self._network()["width"]
        if joint.shape[1] != width:
            raise DataError(
                f"model: embeddings of {N} parties join to {joint.shape[1]} numbers a row, and the "
                f"server model takes {width}; give those of this server's clients"
            )
        found = _evaluated(self._centre, joint)
        return found if ids is None else pd.DataFrame(found, index=ids)

    def save_onnx(self, path: Path) -> Path:
        """Write the server model as an ONNX file: ``joined``, (m, width) float32, to ``scores``.

        ``joined`` are the clients' embeddings, joined by the rule ``about["aggregation"]`` (their
        mean, for example). ConfigurationError without the extra ``onnx`` or without the network.
        """
        return write_onnx(self._centre, self._network()["width"], path, ("joined", "scores"))

    @functools.cached_property
    def class_values(self) -> np.ndarray:
        """Class values as the user gave them, (C,), in order of class numbers."""
        return restored_classes(self.about.get("class_values"), self.about["classes"])

    def predict(self, embeddings: Embeddings) -> np.ndarray | pd.Series:
        """Predicted labels as the user gave them, or real values of a regression.

        A pandas Series if rows have ids. Argument and errors are those of `scores`.
        """
        import pandas as pd

        scores = self.scores(embeddings)
        found = decided(self.about["task"], self.class_values, np.asarray(scores))
        return pd.Series(found, index=scores.index) if isinstance(scores, pd.DataFrame) else found

    def predict_proba(self, embeddings: Embeddings) -> np.ndarray | pd.DataFrame:
        """Class probabilities, (m, C) float64; a data frame with a column a class if rows have ids.

        Column names are the class labels that `predict` returns.

        Raises
        ------
        ConfigurationError
            For a regression, a missing embedding, or a model exported as arrays only.
        DataError
            If rows cannot be matched, or embeddings are not finite or do not fit the server model.
        """
        import pandas as pd

        scores = self.scores(embeddings)
        found = probabilities(self.about["task"], np.asarray(scores))
        if not isinstance(scores, pd.DataFrame):
            return found
        return pd.DataFrame(found, index=scores.index, columns=self.class_values)


@dataclass(frozen=True)
class JointModel:
    """All parties' models together, which only an experimenter has.

    Attributes
    ----------
    server : ServerModel
        Model of the server.
    clients : tuple of ClientModel
        In the order of their numbers.
    """

    server: ServerModel
    clients: tuple[ClientModel, ...]

    @property
    def task(self) -> str:
        """Task of the labels: "binary", "multiclass" or "regression"."""
        return str(self.server.about["task"])

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in order; () for a regression."""
        return tuple(self.server.about["classes"])

    @property
    def class_values(self) -> np.ndarray:
        """Class values as the user gave them, (C,), in order of class numbers."""
        return self.server.class_values

    def scores(self, rows: Table | Sequence[Table]) -> np.ndarray:
        """Raw scores of raw rows, (m, outputs) float64.

        Parameters
        ----------
        rows : DataFrame, or sequence of one table per party
            One data frame has the columns of all parties by name. If tables have the id column of
            the training data, all must have the same ids in the same order.

        Raises
        ------
        DataError
            If the number of tables is wrong, their rows differ or are in different orders, columns
            are missing, values are unusable, or weights are damaged.
        ConfigurationError
            If the models were exported as arrays only, or do not belong together.
        """
        import pandas as pd

        given = as_frame(rows)
        if isinstance(given, pd.DataFrame):
            given = [given] * len(self.clients)
        tables = [*map(as_frame, given)]
        if len(tables) != len(self.clients):
            raise DataError(
                f"model: {len(tables)} tables for {len(self.clients)} parties; give a data frame, "
                "or one table for each party in order"
            )
        refuse_other_rows(tables, self.server.about.get("id_column"))
        parts = enumerate(zip(self.clients, tables, strict=True))
        return np.asarray(self.server.scores({n: client.values(own) for n, (client, own) in parts}))

    def predict(self, rows: Table | Sequence[Table]) -> np.ndarray:
        """Predicted labels as the user gave them, or real values of a regression."""
        return decided(self.task, self.class_values, self.scores(rows))

    def predict_proba(self, rows: Table | Sequence[Table]) -> np.ndarray:
        """Probabilities of the classes, (m, C) float64."""
        return probabilities(self.server.about["task"], self.scores(rows))

    def save_onnx(self, folder: Path | str) -> list[Path]:
        """Write ``server.onnx``, ``party-0.onnx``, ... into a folder, which is made."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        first = self.server.save_onnx(folder / "server.onnx")
        parts = enumerate(self.clients)
        return [first, *(one.save_onnx(folder / f"party-{n}.onnx") for n, one in parts)]

    def named(self) -> dict[str, ExportedModel]:
        """The models by file name."""
        clients = {f"party-{n}.npz": model for n, model in enumerate(self.clients)}
        return {"server.npz": self.server, **clients}


def export_models(protocol: Protocol, parties: Mapping[int, Party], folder: Path) -> list[Path]:
    """Write each party's model to a file of its own: ``server.npz``, ``party-0.npz``, ...

    If a protocol does not have one network per client and a server model, only its arrays are
    exported.

    Parameters
    ----------
    protocol : Protocol
        Configured protocol.
    parties : mapping of int to Party
        Parties with their trained models.
    folder : Path
        Created if missing.

    Returns
    -------
    list of Path
        The server's file first.

    Raises
    ------
    ConfigurationError
        If a file of such a name exists with another model; nothing is written.
    """
    return _save_all(described(protocol, parties), model_arrays(parties), folder)


def export_own(protocol: Protocol, parties: Mapping[int, Party], index: int, folder: Path) -> Path:
    """Write the model of one party and return its file; other parties may be untrained.

    Parameters
    ----------
    protocol, parties, folder : Protocol, mapping of int to Party, Path
        Configured protocol; parties by number; folder, created if missing. A file is replaced.
    index : int
        Number of the party.
    """
    about = described(protocol, parties)[index]
    own = own_arrays(model_arrays({index: parties[index]}), index)
    model = ServerModel(about, own) if index == SERVER else ClientModel(about, own)
    path = folder / ("server.npz" if index == SERVER else f"party-{index}.npz")
    model.save(path)
    return path


def joint_model(protocol: Protocol, parties: Mapping[int, Party]) -> JointModel:
    """Trained models of all parties, as one object that does not need the run."""
    return _joint(described(protocol, parties), model_arrays(parties))


def _joint(abouts: Mapping[int, About], arrays: Mapping[str, np.ndarray]) -> JointModel:
    clients = [n for n, about in abouts.items() if n != SERVER and about["preprocessing"]]
    return JointModel(
        ServerModel(abouts[SERVER], own_arrays(arrays, SERVER)),
        tuple(ClientModel(abouts[n], own_arrays(arrays, n)) for n in clients),
    )


def _save_all(
    abouts: Mapping[int, About], arrays: Mapping[str, np.ndarray], folder: Path
) -> list[Path]:
    models = _joint(abouts, arrays).named()
    for n, about in abouts.items():
        if n != SERVER and not about["preprocessing"]:
            models[f"party-{n}.npz"] = ClientModel(about, own_arrays(arrays, n))
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in models.items():
        path = folder / name
        if path.exists() and (path.is_dir() or path.read_bytes() != model.to_bytes()):
            raise ConfigurationError(
                f"export: {path} is there, and is not the model of this run; nothing was written. "
                "Give another folder, or remove that file"
            )
    for name, model in models.items():
        model.save(folder / name)
    return [folder / name for name in models]


def kept_models(folder: Path, *, code: Collection[str] = ()) -> JointModel | None:
    """Models from a finished run's folder, without its data; None if it has no descriptions.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    code : collection of str
        The user's networks, ``module:name``, that may be imported.

    Raises
    ------
    CheckpointError
        If a description is damaged.
    """
    abouts = read_descriptions(folder)
    if not abouts:
        return None
    allow(*code)
    return _joint(abouts, read_arrays(folder / MODELS))


def export_kept(folder: Path, out: Path) -> list[Path] | None:
    """Write a finished run's models as `export_models` does; None if no descriptions are stored."""
    abouts = read_descriptions(folder)
    return _save_all(abouts, read_arrays(folder / MODELS), out) if abouts else None


def load_model(path: Path | str, *, code: Collection[str] = ()) -> ClientModel | ServerModel:
    """Read one party's exported model.

    Parameters
    ----------
    path : Path
        The file, such as ``party-0.npz``.
    code : collection of str
        The user's networks, ``module:name``, that may be imported. A file cannot import others.

    Returns
    -------
    ClientModel or ServerModel

    Raises
    ------
    DataError
        If the file is no exported model, is damaged, or has another version.
    """
    path = Path(path)
    try:
        arrays = read_arrays(path)
        about = json.loads(arrays.pop(ABOUT).tobytes())
    except OSError as error:
        raise DataError(f"model: {path} cannot be read: {error.strerror or error}") from None
    except (KeyError, *NOT_PARSED) as error:
        raise DataError(f"model: {path} is no exported model, or damaged: {error}") from None
    if not isinstance(about, dict):
        raise DataError(f"model: {path} is no exported model, or damaged: no description")
    if about.get("format") != FORMAT:
        raise DataError(
            f"model: {path} has format {about.get('format')}, this version reads {FORMAT}"
        )
    try:
        check_description(about)
    except ValueError as error:
        raise DataError(f"model: {path} is damaged, or of another version: {error}") from None
    allow(*code)
    if about["role"] == "server":
        return ServerModel(about, arrays)
    return ClientModel(about, arrays)


def load_models(folder: Path | str, *, code: Collection[str] = ()) -> JointModel:
    """Read the exported models of all parties.

    Parameters
    ----------
    folder : Path
        Folder with ``server.npz`` and a ``party-<n>.npz`` per client, or the folder of a run.
    code : collection of str
        The user's networks, ``module:name``, that may be imported.

    Raises
    ------
    DataError
        If a file is missing or cannot be used.
    ConfigurationError, CheckpointError
        If a run's summary cannot be read, or files of the run are damaged.
    """
    folder = Path(folder)
    if (folder / SUMMARY).is_file():  # of a run
        read_summary(folder / SUMMARY)  # it compares the checksums of all files
        found = kept_models(folder, code=code)
        if found is not None:
            return found
    server = load_model(folder / "server.npz", code=code)
    if not isinstance(server, ServerModel):
        raise DataError(f"model: {folder / 'server.npz'} is a client's model, not the server's")
    clients = []
    for n in range(server.about["parties"]):
        client = load_model(folder / f"party-{n}.npz", code=code)
        if not isinstance(client, ClientModel) or client.about["party"] != n:
            raise DataError(f"model: {folder / f'party-{n}.npz'} is not the model of party {n}")
        clients.append(client)
    return JointModel(server, tuple(clients))


def _loaded(make: Callable[[], Module], weights: Mapping[str, np.ndarray], *, own: bool) -> Module:
    """Torch module of `make` with these weights, float64, in evaluation mode; DataError if unfit.

    Shapes are compared on the meta device first, because a file may describe a network of any size.
    A user's own network may not support this.
    """
    import torch

    if not own:
        try:
            with torch.device("meta"):
                shapes = {name: tuple(one.shape) for name, one in make().state_dict().items()}
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, ConfigurationError):
                raise
            raise DataError(f"{_OTHER}: {' '.join(str(error).split())}") from None
        _refuse_other_shapes(shapes, {name: values.shape for name, values in weights.items()})
    module = make()
    try:
        module.load_state_dict({k: tensor(v) for k, v in weights.items()})
    except RuntimeError as error:
        raise DataError(f"{_OTHER}: {' '.join(str(error).split())}") from None
    return module.double().eval()


def _refuse_other_shapes(
    described: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> None:
    for name in sorted(described.keys() | found.keys()):
        wanted, there = described.get(name), found.get(name)
        if wanted != there:
            raise DataError(
                f"{_OTHER}: {name} is {there or 'absent'}, and the network has {wanted or 'none'}"
            )


def _evaluated(module: Module, rows: np.ndarray) -> np.ndarray:
    import torch

    inputs = tensor(rows, np.float64)
    with torch.no_grad():
        parts: Sequence[np.ndarray] = [
            module(inputs[start : start + _AT_ONCE]).numpy()
            for start in range(0, max(len(inputs), 1), _AT_ONCE)
        ]
    return np.concatenate(parts)
