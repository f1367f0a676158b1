"""Secure vertical federated learning: several parties train one model and keep their columns.

::

    import securevfl as svfl

    data = svfl.load_dataset("digits", parties=8)
    run = svfl.run(protocol, data, rounds=200, seed=0)
    print(run.summary())

`protocol` is a name that ``securevfl protocols`` lists.

The names below are the public ones; each is imported when it is first used, so that importing the
package is fast and has no effects. Authors of protocols use `securevfl.engine.party` and
`securevfl.protocols.protocol` as well.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from securevfl._version import __version__

if TYPE_CHECKING:
    from securevfl.audit.verify import verify
    from securevfl.data import VerticalDataset, dataset_catalogue, load_dataset
    from securevfl.engine.conditions import Conditions
    from securevfl.errors import ConfigurationError, RunError, SecureVFLError
    from securevfl.planning.forecast import Forecast, plan
    from securevfl.runs.engines.run import Interrupted, resume, run
    from securevfl.runs.estimators.any_protocol import VFLClassifier, VFLRegressor
    from securevfl.runs.export import load_model, load_models
    from securevfl.runs.history import Progress
    from securevfl.runs.load import load_run
    from securevfl.runs.result import Run
    from securevfl.verified.traced.certificates import Certificate

__all__ = [
    "Certificate",
    "Conditions",
    "ConfigurationError",
    "Forecast",
    "Interrupted",
    "Progress",
    "Run",
    "RunError",
    "SecureVFLError",
    "VFLClassifier",
    "VFLRegressor",
    "VerticalDataset",
    "__version__",
    "dataset_catalogue",
    "load_dataset",
    "load_model",
    "load_models",
    "load_run",
    "plan",
    "resume",
    "run",
    "verify",
]

_EXPORTS = {
    "Certificate": "verified.traced.certificates",
    "Conditions": "engine.conditions",
    "ConfigurationError": "errors",
    "Forecast": "planning.forecast",
    "Interrupted": "runs.engines.run",
    "Progress": "runs.history",
    "Run": "runs.result",
    "RunError": "errors",
    "SecureVFLError": "errors",
    "VFLClassifier": "runs.estimators.any_protocol",
    "VFLRegressor": "runs.estimators.any_protocol",
    "VerticalDataset": "data",
    "dataset_catalogue": "data",
    "load_dataset": "data",
    "load_model": "runs.export",
    "load_models": "runs.export",
    "load_run": "runs.load",
    "plan": "planning.forecast",
    "resume": "runs.engines.run",
    "run": "runs.engines.run",
    "verify": "audit.verify",
}

# A library says nothing unless whoever uses it asks for it.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
