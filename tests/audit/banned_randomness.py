"""Uses of randomness in source files that go round the sampler and the keyed streams."""

import ast

_MODULES = {"random", "secrets", "uuid"}
_CALLS = {
    *("os.urandom", "np.random.default_rng", "numpy.random.default_rng"),
    *("torch.manual_seed", "torch.default_generator.manual_seed"),
}
_TORCH = {"rand", "randn", "randint", "randperm", "bernoulli", "normal", "multinomial"}


def banned_randomness(source: str) -> list[str]:
    """Uses of randomness in a source file that go round the sampler and the keyed streams.

    Imports of ``random``, ``secrets`` and ``uuid``, ``os.urandom``, and functions of ``np.random``
    and ``torch`` that draw. Classes (``np.random.Generator``, ``np.random.Philox``) are allowed:
    streams are keyed by them, and they never make a mask.
    """
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [f"import {a.name}" for a in node.names if a.name.split(".")[0] in _MODULES]
        elif isinstance(node, ast.ImportFrom):
            home = (node.module or "").split(".")[0]
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [f"from {n}" for n in names if home in _MODULES or n in _CALLS]
        elif isinstance(node, ast.Attribute):
            found += _banned_name(ast.unparse(node))
    return found


def _banned_name(name: str) -> list[str]:
    parts = name.split(".")
    if name in _CALLS or (parts[0] == "torch" and len(parts) == 2 and parts[1] in _TORCH):
        return [name]
    lower = len(parts) == 3 and parts[2][:1].islower()
    return [name] if lower and parts[:2] in (["np", "random"], ["numpy", "random"]) else []
