"""One run: what determines it, how it is started, kept, loaded, used."""
