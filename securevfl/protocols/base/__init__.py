"""What all protocols share, and what a protocol is to the rest of the library."""
