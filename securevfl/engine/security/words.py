"""Digests as words, for people to compare by telephone."""

from __future__ import annotations

import hashlib

_TEXT = """
acid actor adult again album amber angle ankle apple april arena armor arrow aspen atlas attic
autumn award baby bacon badge baker bamboo banjo barrel basket beach bell berry bicycle birch
bishop blanket boat bonus border bottle bowl bracelet bread brick bronze bucket bullet butter
cabin cactus camel candle carbon castle cave cedar celery cello cereal chain cherry chimney circus
clay cliff clock cloud coach cobra coffee comet copper coral cotton cousin cradle cricket crown
cube curtain dance decade deer dentist desert diamond dinner dolphin donkey door dragon dream drum
duck eagle easel echo eight elbow elephant engine envelope evening fabric falcon family farm
feather fence fiddle finger flag flute forest fossil fountain fox friday frog fruit garden garlic
gate ghost ginger giraffe glass globe goat gold grape guitar hammer harbor hawk helmet hero hill
honey horse hotel hunter husband igloo index insect iris island ivory jacket jaguar jelly jewel
jockey judge jungle kettle kitchen knee ladder lake lamp lemon letter library lily lion lizard
lobster lunch magnet mango maple market meadow medal melon mirror monday mother mountain museum
mushroom napkin needle nephew nickel night north nurse oak ocean olive onion opera orange orchard
otter oven oyster paddle palace panda paper parrot peach pencil pepper piano pigeon pillow pirate
planet plum pocket poem potato prince pumpkin queen rabbit radio rain recipe ribbon river robin
rocket rope rose ruby saddle salmon school seven shadow ship silver sister snow spider summer
table tailor temple tiger tomato tractor tunnel turtle uncle valley velvet violin walnut window
yellow zebra zipper
"""
WORDS = tuple(_TEXT.split())
_COUNT = 16


def in_words(digest: bytes) -> str:
    """Sixteen words, from a list of 256, for the first 128 bits of SHA-256(digest).

    Parameters
    ----------
    digest : bytes
        32 bytes.
    """
    hashed = hashlib.sha256(digest).digest()
    return " ".join(WORDS[byte] for byte in hashed[:_COUNT])
