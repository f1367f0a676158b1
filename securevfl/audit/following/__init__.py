"""States of recorded parties, followed by the library's own parties beside them."""
