"""`make bench`: all figures, or those named: python -m benchmarks start validate apply rollouts decide."""

from __future__ import annotations

import sys

from benchmarks import apply, decide, rollouts, start, validate

PARTS = {"start": start.main, "validate": validate.main, "apply": apply.main, "rollouts": rollouts.main, "decide": decide.main}

for name in sys.argv[1:] or PARTS:
    print(f"\n# {name}", flush=True)
    PARTS[name]()
