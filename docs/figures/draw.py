"""Draws the figures of the concepts page: ``python docs/figures/draw.py`` writes the SVG files.

Coordinates are computed, and where a figure shows numbers they are those of the mathematics.
Colours are variables: a file on its own follows the light or dark setting of its reader, and inside
the site the theme of the site (docs/_static/site.css).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
WIDTH = 480  # narrow, so that the words can still be read on a telephone

LIGHT = {
    "ink": "#1f2430", "soft": "#626b7a", "line": "#c3c9d3", "paper": "#ffffff", "one": "#0b62b8",
    "two": "#a8500c", "three": "#157347", "mask": "#7a3fb0", "shade": "#eef1f5",
}  # fmt: skip
DARK = {
    "ink": "#e6e9ef", "soft": "#a4adbb", "line": "#4b5361", "paper": "#131416", "one": "#6db3f8",
    "two": "#f0a15c", "three": "#63c995", "mask": "#c79bf2", "shade": "#22262c",
}  # fmt: skip

P = 97  # the small field of the figure of shares
BETAS, ALPHAS = (1, 2, 3), tuple(range(4, 12))  # K + T = 2 + 1 points, and those of 8 clients


def variables(colours: dict[str, str]) -> str:
    """Colours as CSS variables."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


class Drawing:
    """An SVG file in the making.

    Parameters
    ----------
    name : str
        File name without its suffix.
    title : str
        For those who do not see the picture.
    height : int
    """

    def __init__(self, name: str, title: str, height: int) -> None:
        self.name, self.title, self.height = name, title, height
        self.parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        fill: str = "ink",
        anchor: str = "middle",
        size: int = 14,
        italic: bool = False,
    ) -> None:
        """Words at a place; ``_`` lowers the next character and ``^`` raises it."""
        style = ' font-style="italic"' if italic else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}"'
            f' fill="var(--{fill})"{style}>{_scripts(words)}</text>'
        )

    def box(
        self, x: float, y: float, w: float, h: float, *, fill: str = "shade", stroke: str = "line"
    ) -> None:
        """A rectangle."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="3"'
            f' fill="var(--{fill})" stroke="var(--{stroke})"/>'
        )

    def dot(
        self, x: float, y: float, *, fill: str = "one", stroke: str | None = None, r: float = 5
    ) -> None:
        """A disc; hollow where the fill is that of the paper."""
        self.parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{r:g}" fill="var(--{fill})"'
            f' stroke="var(--{stroke or fill})" stroke-width="2"/>'
        )

    def diamond(self, x: float, y: float, *, fill: str = "three", r: float = 7) -> None:
        """A square on its corner: a value that is wanted."""
        self.parts.append(
            f'<path d="M{x:g} {y - r:g} l{r:g} {r:g} l{-r:g} {r:g} l{-r:g} {-r:g} z"'
            f' fill="var(--{fill})"/>'
        )

    def line(
        self,
        points: Iterable[tuple[float, float]],
        *,
        stroke: str = "ink",
        width: float = 1.5,
        dash: str = "",
        arrow: bool = False,
    ) -> None:
        """A line through points."""
        path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        extra += f' marker-end="url(#{self.name}-{stroke})"' if arrow else ""
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="var(--{stroke})" stroke-width="{width:g}"'
            f"{extra}/>"
        )

    def write(self) -> None:
        """Write the file."""
        heads = "".join(
            f'<marker id="{self.name}-{colour}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
            f' markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="var(--{colour})"/>'
            "</marker>"
            for colour in LIGHT
            if f"url(#{self.name}-{colour})" in "".join(self.parts)
        )
        body = "\n".join(self.parts)
        HERE.joinpath(f"{self.name}.svg").write_text(
            f'<svg class="svfl" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH}'
            f' {self.height}" role="img" font-family="system-ui, sans-serif">\n'
            f"<title>{escape(self.title)}</title>\n"
            f"<style>.svfl {{ {variables(LIGHT)} }}\n"
            f"@media (prefers-color-scheme: dark) {{ .svfl {{ {variables(DARK)} }} }}</style>\n"
            f"<defs>{heads}</defs>\n{body}\n</svg>\n"
        )


def _scripts(words: str) -> str:
    """Escaped words with lowered and raised characters."""
    out, at = "", 0
    while at < len(words):
        if words[at] in "_^" and at + 1 < len(words):
            shift = 4 if words[at] == "_" else -5
            out += f'<tspan dy="{shift}" font-size="0.75em">{escape(words[at + 1])}</tspan>'
            out += f'<tspan dy="{-shift}">&#8203;</tspan>'
            at += 2
        else:
            out += escape(words[at])
            at += 1
    return out


# -- the mathematics that the figures show -------------------------------------------------------


def interpolated(xs: Sequence[float], ys: Sequence[float]) -> Callable[[float], float]:
    """The polynomial through points, over the reals."""

    def value(z: float) -> float:
        total = 0.0
        for i, x in enumerate(xs):
            term = ys[i]
            for j, other in enumerate(xs):
                if j != i:
                    term *= (z - other) / (x - other)
            total += term
        return total

    return value


def share_at(point: int, values: Sequence[int]) -> int:
    """F(point) modulo P, for F through `values` at the betas."""
    total = 0
    for i, beta in enumerate(BETAS):
        term = values[i]
        for j, other in enumerate(BETAS):
            if j != i:
                term = term * (point - other) * pow(beta - other, -1, P) % P
        total += term
    return total % P


# -- figures -------------------------------------------------------------------------------------


def setting() -> None:
    """Who holds what."""
    d = Drawing(
        "setting", "Three clients hold columns of the same rows, the server the labels", 300
    )
    owners = (("client 1", 3, "one"), ("client 2", 2, "two"), ("client 3", 4, "mask"))
    x, top, rows, side = 30.0, 60.0, 6, 24.0
    for name, columns, colour in owners:
        width = columns * side
        d.text(x + width / 2, top - 14, name, fill=colour)
        for c in range(columns):
            for r in range(rows):
                d.box(x + c * side, top + r * side, side - 3, side - 3, fill="shade", stroke=colour)
        d.text(x + width / 2, top + rows * side + 22, f"X_{name[-1]}", fill=colour, italic=True)
        x += width + 26
    d.text(x + 10, top - 14, "server", fill="three")
    for r in range(rows):
        d.box(x, top + r * side, side - 3, side - 3, fill="shade", stroke="three")
    d.text(x + 12, top + rows * side + 22, "labels", fill="three")
    d.text(x + 34, top + 16, "a row: the same", anchor="start", size=12, fill="soft")
    d.text(x + 34, top + 32, "person everywhere", anchor="start", size=12, fill="soft")
    d.text(240, 264, "Client n has weights W_n; its embedding is H_n = X_nW_n.", size=13)
    d.text(240, 286, "The server trains on the mean of all H_n: it needs their sum only.", size=13)
    d.write()


def share() -> None:
    """How one block of data becomes eight shares, with true numbers modulo 97."""
    values = (30, 71, 55)
    d = Drawing("share", "Two segments and a mask, and the eight shares of the clients", 360)
    left, right, top, bottom = 44.0, 462.0, 84.0, 284.0
    place = lambda z: left + (z - 0.5) * (right - left) / 11  # noqa: E731
    level = lambda v: bottom - v * (bottom - top) / (P - 1)  # noqa: E731
    d.box(place(0.5), top - 12, place(3.5) - place(0.5), bottom - top + 24, stroke="paper")
    d.text(place(2), 24, "what client n puts in", size=13, fill="soft")
    d.text(place(7.5), 24, "what the clients get", size=13, fill="soft")
    for v in (0, 48, 96):
        d.line([(left, level(v)), (right, level(v))], stroke="line", width=1)
        d.text(left - 6, level(v) + 4, str(v), anchor="end", size=12, fill="soft")
    names = ("X_1", "X_2", "Z")
    for beta, value, name in zip(BETAS, values, names, strict=True):
        colour = "mask" if name == "Z" else "three"
        d.diamond(place(beta), level(value), fill=colour)
        anchor, shift = ("end", 10) if name == "Z" else ("start", -8)
        words = f"{name} = {value}"
        d.text(place(beta) + shift, level(value) - 14, words, fill=colour, anchor=anchor, size=13)
    for n, alpha in enumerate(ALPHAS, 1):
        value = share_at(alpha, values)
        d.dot(place(alpha), level(value))
        d.text(place(alpha), level(value) - 11, str(value), size=12, fill="one")
        d.text(place(alpha), bottom + 42, str(n), size=12, fill="one")
    for i, beta in enumerate(BETAS, 1):
        d.text(place(beta), bottom + 24, f"β_{i}", size=13)
    for n, alpha in enumerate(ALPHAS, 1):
        d.text(place(alpha), bottom + 24, f"α_{n}", size=13)
    d.text(place(1.5), bottom + 42, "data", size=12, fill="three")
    d.text(place(3), bottom + 42, "mask", size=12, fill="mask")
    d.text(place(7.5), bottom + 62, "to client number", size=12, fill="soft")
    d.text(240, 52, "one polynomial F of degree 2 through three points, modulo 97", size=13)
    d.write()


def secrecy() -> None:
    """A single share against the mask: each value once, whatever the secret is."""
    d = Drawing("secrecy", "Client 5's share takes every value once as the mask runs through", 330)
    left, right, top, bottom = 60.0, 440.0, 46.0, 262.0
    place = lambda z: left + z * (right - left) / (P - 1)  # noqa: E731
    level = lambda v: bottom - v * (bottom - top) / (P - 1)  # noqa: E731
    for v in (0, 48, 96):
        d.line([(left, level(v)), (right, level(v))], stroke="line", width=1)
        d.text(left - 8, level(v) + 4, str(v), anchor="end", size=12, fill="soft")
        d.text(place(v), bottom + 20, str(v), size=12, fill="soft")
    for secret, colour in (((30, 71), "one"), ((80, 2), "two")):
        for z in range(P):
            d.dot(place(z), level(share_at(ALPHAS[4], (*secret, z))), fill=colour, r=1.6)
    d.text(240, 24, "client 5's share, for each mask Z", size=13)
    d.text(240, bottom + 40, "mask Z, drawn uniformly", size=13, fill="soft")
    d.text(130, bottom + 62, "X_1, X_2 = 30, 71", size=13, fill="one")
    d.text(350, bottom + 62, "X_1, X_2 = 80, 2", size=13, fill="two")
    d.write()


def decode() -> None:
    """Five of eight uploads fix the polynomial, and the wanted sums are read off."""
    d = Drawing("decode", "Any five of eight uploads fix a polynomial of degree four", 350)
    psi = interpolated((1, 3.5, 6, 8.5, 11), (0.75, 0.2, 0.62, 0.3, 0.7))
    left, right, top, bottom = 24.0, 462.0, 70.0, 260.0
    place = lambda z: left + (z - 0.5) * (right - left) / 11  # noqa: E731
    level = lambda v: bottom - v * (bottom - top)  # noqa: E731
    zs = [0.7 + i * (11.25 - 0.7) / 160 for i in range(161)]
    d.line([(place(z), level(psi(z))) for z in zs], stroke="soft")
    d.line([(left, bottom + 14), (right, bottom + 14)], stroke="line", width=1)
    late = {4, 7, 9}
    for beta in (1, 2):
        d.line([(place(beta), level(psi(beta))), (place(beta), bottom + 14)], stroke="three",
               width=1, dash="3 3")  # fmt: skip
        d.diamond(place(beta), level(psi(beta)))
        d.text(place(beta), bottom + 32, f"β_{beta}", fill="three")
    for n, alpha in enumerate(ALPHAS, 1):
        slow = alpha in late
        d.dot(place(alpha), level(psi(alpha)), fill="paper" if slow else "one", stroke="one")
        d.text(place(alpha), bottom + 32, f"α_{n}", fill="soft" if slow else "one")
    d.text(240, 24, "the uploads lie on one polynomial ψ of degree 2(K+T−1) = 4", size=13)
    d.text(240, 46, "so R = 5 of them fix it, whichever five they are", size=13)
    d.dot(60, 322, r=5)
    d.text(72, 327, "came in time", anchor="start", size=13)
    d.dot(184, 322, fill="paper", stroke="one")
    d.text(196, 327, "straggler", anchor="start", size=13)
    d.diamond(290, 322)
    d.text(304, 327, "sum of all embeddings", anchor="start", size=13)
    d.write()


def mask() -> None:
    """What masking adds vanishes where the sums are read off."""
    d = Drawing("mask", "The masked polynomial meets the plain one at the data points only", 340)
    psi = interpolated((1, 3.5, 6, 8.5, 11), (0.75, 0.2, 0.62, 0.3, 0.7))
    rho = interpolated((1, 5, 11), (0.03, 0.019, -0.016))
    masked = lambda z: psi(z) + (z - 1) * (z - 2) * rho(z)  # noqa: E731
    left, right, top, bottom = 24.0, 462.0, 70.0, 260.0
    place = lambda z: left + (z - 0.5) * (right - left) / 11  # noqa: E731
    values = [masked(0.7 + i * 0.0659) for i in range(161)]
    low, high = min(*values, 0), max(*values, 1)
    level = lambda v: bottom - (v - low) / (high - low) * (bottom - top)  # noqa: E731
    zs = [0.7 + i * (11.25 - 0.7) / 160 for i in range(161)]
    d.line([(place(z), level(psi(z))) for z in zs], stroke="soft", dash="5 4")
    d.line([(place(z), level(masked(z))) for z in zs], stroke="mask", width=2)
    d.line([(left, bottom + 14), (right, bottom + 14)], stroke="line", width=1)
    for beta in (1, 2):
        d.diamond(place(beta), level(psi(beta)))
        d.text(place(beta), bottom + 32, f"β_{beta}", fill="three")
    for n, alpha in enumerate(ALPHAS, 1):
        d.dot(place(alpha), level(masked(alpha)), fill="mask")
        d.text(place(alpha), bottom + 32, f"α_{n}", fill="mask")
    d.text(
        240,
        24,
        "uploaded: ψ(z) + P(z) ρ(z), with ρ from keys, of which T clients lack one",
        size=13,
    )
    d.text(240, 46, "P(z) = (z − β_1)(z − β_2) is zero exactly at the data points", size=13)
    d.line([(76, 318), (106, 318)], stroke="soft", dash="5 4")
    d.text(114, 322, "ψ, never sent", anchor="start", size=13)
    d.line([(250, 318), (280, 318)], stroke="mask", width=2)
    d.text(288, 322, "what is sent", anchor="start", size=13)
    d.write()


def round_() -> None:
    """One round in time: who sends what, and who is late."""
    d = Drawing("round", "A round of FedVS in time", 520)
    lanes = {"server": 52, "1": 150, "2": 240, "3": 330, "4": 420}
    for name, x in lanes.items():
        colour = "three" if name == "server" else "two" if name == "4" else "one"
        d.text(x, 22, "server" if name == "server" else f"client {name}", size=13, fill=colour)
        d.line([(x, 34), (x, 500)], stroke="line", width=1)
    S, clients = lanes["server"], [lanes[n] for n in "1234"]

    def step(y: float, words: str) -> None:
        d.box(16, y - 15, 448, 21, stroke="paper")
        d.text(240, y, words, size=13)

    step(58, "announce the rows of the batch")
    for i, x in enumerate(clients):
        d.line([(S, 76), (x, 88 + 2 * i)], stroke="three", width=1.2, arrow=True)
    step(124, "share models with one another")
    for i, a in enumerate(clients):
        for b in clients[:i] + clients[i + 1 :]:
            late = 16 if i == 3 else 0
            d.line([(a, 142), (b, 178 + late)], stroke="two" if i == 3 else "one", width=0.8,
                   arrow=True)  # fmt: skip
    step(228, "name the attempt: batch, sharers S")
    for i, x in enumerate(clients):
        d.line([(S, 246), (x, 258 + 2 * i)], stroke="three", width=1.2, arrow=True)
    step(296, "compute on shares and upload; the first R are enough")
    for i, x in enumerate(clients[:3]):
        d.line([(x, 312 + 8 * i), (S, 340 + 6 * i)], stroke="one", width=1.5, arrow=True)
    d.dot(S, 360, fill="three", r=6)
    d.text(S + 14, 378, "R = 3 came: decode, step", anchor="start", size=12, fill="three")
    d.line([(clients[3], 330), (S + 6, 480)], stroke="two", width=1.5, dash="5 4", arrow=True)
    step(410, "return the gradient; each client steps by itself")
    for i, x in enumerate(clients):
        d.line([(S, 426), (x, 438 + 2 * i)], stroke="three", width=1.2, arrow=True)
    d.text(S + 14, 496, "late: counted, and not waited for", anchor="start", size=12, fill="two")
    d.write()


FIGURES = (setting, share, secrecy, round_, decode, mask)

if __name__ == "__main__":
    for figure in FIGURES:
        figure()
