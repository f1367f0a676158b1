"""Entry point of ``python -m securevfl``, the same as the command ``securevfl``."""

from __future__ import annotations

from securevfl.cli import main

if __name__ == "__main__":
    main()
