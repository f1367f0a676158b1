"""The literature page, from the protocols' own cards."""

from __future__ import annotations

from typing import Any

ABSENCE = {
    "waits": "waits for everybody",
    "skips": "goes on without the missing",
    "fills": "puts something in the place of what is missing",
    "tolerates": "goes on as if nobody were missing, up to a number",
}


def cards() -> str:
    """Markdown: a table of all protocols that are found, and a section for each."""
    return "\n\n".join([overview(), *(section(cls) for cls in found().values())])


def overview() -> str:
    """One line for each protocol."""
    rows = [
        f"| [`{name}`](#{anchor(name)}) | {cls.card.title} | {cls.card.paper} "
        f"| {ABSENCE[cls.card.absence]} |"
        for name, cls in found().items()
    ]
    head = ["| name | method | source | without a party it |", "|---|---|---|---|"]
    return "\n".join(head + rows)


def found() -> dict[str, Any]:
    """Protocols by name, those of installed packages included."""
    from securevfl.protocols.base.registry import find_protocols

    return find_protocols()


def anchor(name: str) -> str:
    """Where the section of a protocol is."""
    return f"protocol-{name.replace('_', '-')}"


def section(cls: Any) -> str:
    """One protocol: what each role does and sees, what is claimed, where it departs."""
    card = cls.card
    roles = [
        f"| {role} | {card.roles.get(role, '')} | {seen} |" for role, seen in card.sees.items()
    ]
    parts = [
        f"({anchor(cls.name)})=\n## {card.title}",
        f"`securevfl run {cls.name}`. {card.paper}.",
        "\n".join(["| role | does | sees |", "|---|---|---|", *roles]),
        claims(cls),
    ]
    if card.deviations:
        parts.append("Where this implementation fills a gap of the paper or departs from it:")
        parts.append("\n".join(f"- {words}" for words in card.deviations))
    return "\n\n".join(parts)


def claims(cls: Any) -> str:
    """What is claimed under the default options, in one table."""
    from securevfl.errors import ConfigurationError
    from securevfl.protocols.base.registry import make_config
    from securevfl.testing.runs import learning_data

    try:
        made = cls(make_config(cls, {}), learning_data(), seed=0)
    except ConfigurationError as error:  # a package that is not installed here
        return f"Its claims are not shown: {error}"
    rows = [
        f"| {claim.who} | {claim.about} "
        f"| {'**not protected**' if claim.notion == 'none' else claim.notion} | {claim.source} |"
        for claim in made.claims
    ]
    return "\n".join(["| against | about | secrecy | why |", "|---|---|---|---|", *rows])
