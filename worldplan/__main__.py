"""``python -m worldplan`` is the ``worldplan`` command."""

from __future__ import annotations

import sys

from worldplan.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
