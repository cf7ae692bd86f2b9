"""`make bench`: all figures, or those named: python -m benchmarks start validate apply."""

from __future__ import annotations

import sys

from benchmarks import apply, start, validate

PARTS = {"start": start.main, "validate": validate.main, "apply": apply.main}

for name in sys.argv[1:] or PARTS:
    print(f"\n# {name}", flush=True)
    PARTS[name]()
