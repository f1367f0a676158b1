"""Running protocols: single runs, their history, and what is made of it."""
