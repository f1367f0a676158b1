"""The networks of Multi-VFL's experiments, as far as the paper prints them.

"Each data owner has one convolutional layer with input and output channels as 1 and 32
respectively, and kernel size as 3. The output from the data owners are aggregated to form a tensor
with 32 channels which are then passed to the label owner's model which has one convolutional and
two linear layers." Its images are 28 x 28, and four data owners hold strips of 7 x 28.

Not printed, and ours: no padding and a step of 1 in the data owners (the defaults of torch), ReLU,
strips stacked from top to bottom, and in the label owners 16 channels at a step of 2 and 64 units.

Studies name them, ``own_client = "benchmarks.multivfl_networks:strip"``, and must be started in
the repository, with ``--code`` for each of the two.
"""

from __future__ import annotations

from torch import Tensor, nn

STRIPS, STRIP = 4, (7, 28)  # of 28 x 28 pixels
CHANNELS, KERNEL = 32, 3
MAP = (STRIP[0] - KERNEL + 1, STRIP[1] - KERNEL + 1)  # 5 x 26: what a strip becomes
WIDTH = CHANNELS * MAP[0] * MAP[1]  # h = 4160 numbers of a row and data owner
TOP_CHANNELS, HIDDEN = 16, 64


class Stacked(nn.Module):
    """Layer that turns embeddings (rows, 4 h), side by side, into images (rows, 32, 20, 26)."""

    def forward(self, joint: Tensor) -> Tensor:
        """Images with the parties' strips from top to bottom, channel by channel."""
        strips = joint.view(len(joint), STRIPS, CHANNELS, *MAP)
        return strips.transpose(1, 2).reshape(len(joint), CHANNELS, STRIPS * MAP[0], MAP[1])


def strip(features: int, width: int) -> nn.Module:
    """Network of a data owner: one convolution of 3 x 3, 1 to 32 channels, and ReLU.

    `features` and `width` must be those of a strip of 196 pixels and its output, else ValueError.
    """
    if (features, width) != (STRIP[0] * STRIP[1], WIDTH):
        raise ValueError(f"a strip of 196 pixels becomes {WIDTH} numbers (width = {WIDTH})")
    return nn.Sequential(
        nn.Unflatten(1, (1, *STRIP)), nn.Conv2d(1, CHANNELS, KERNEL), nn.ReLU(), nn.Flatten()
    )


def top(joint: int, outputs: int) -> nn.Module:
    """Network of a label owner: one convolution and two Linear layers on the stacked strips.

    ValueError if `joint` is not the total width of four strips.
    """
    if joint != STRIPS * WIDTH:
        raise ValueError(f"four strips are {STRIPS * WIDTH} numbers; concatenate them")
    height, breadth = ((side - KERNEL) // 2 + 1 for side in (STRIPS * MAP[0], MAP[1]))
    return nn.Sequential(
        Stacked(),
        nn.Conv2d(CHANNELS, TOP_CHANNELS, KERNEL, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(TOP_CHANNELS * height * breadth, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, outputs),
    )
