"""What protocols claim, and how the claims are checked."""
