"""`make bench`: all figures, or those named: python -m benchmarks start validate check changes apply rollouts decide page."""

from __future__ import annotations

import sys

from benchmarks import apply, changes, check, decide, page, rollouts, start, validate

PARTS = {
    "start": start.main,
    "validate": validate.main,
    "check": check.main,
    "changes": changes.main,
    "apply": apply.main,
    "rollouts": rollouts.main,
    "decide": decide.main,
    "page": page.main,
}

for name in sys.argv[1:] or PARTS:
    print(f"\n# {name}", flush=True)
    PARTS[name]()
