"""What noise was added to recorded messages, and whether it is the noise that a claim promises."""
