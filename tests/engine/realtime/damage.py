"""Damage to a party's file of checkpoints."""

from securevfl.engine.realtime.checkpoint_store import ROUNDS
from securevfl.engine.realtime.slot_file import SlotFile


def spoil_newest(folder):
    """Change a byte of the newest checkpoint; return its round."""
    path = folder / ROUNDS
    file = SlotFile(path)
    file.open()
    newest = file.rounds[-1]
    content = path.read_bytes()
    at = content.index(file.read(newest))
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    return newest


def forget_ahead(folder):
    """Lose what was written ahead of the checkpoints."""
    file = SlotFile(folder / ROUNDS)
    file.open()
    records = {round: file.read(round) for round in file.rounds}
    file.remove()
    for round, body in records.items():
        file.put(round, body)
    file.sync()
