"""`make bench`: all figures, or those named, such as python -m benchmarks start apply service."""

from __future__ import annotations

import os
import sys

from benchmarks import (
    apply,
    changes,
    check,
    costs,
    decide,
    growth,
    large,
    large_changes,
    page,
    plan,
    rollouts,
    service,
    staged_rollouts,
    stages,
    start,
    startup_taints,
    validate,
    watches,
)

PARTS = {
    "costs": costs.main,
    "start": start.main,
    "validate": validate.main,
    "check": check.main,
    "changes": changes.main,
    "apply": apply.main,
    "plan": plan.main,
    "rollouts": rollouts.main,
    "decide": decide.main,
    "stages": stages.main,
    "startup_taints": startup_taints.main,
    "staged_rollouts": staged_rollouts.main,
    "page": page.main,
    "watches": watches.main,
    "service": service.main,
    "large": large.main,
    "large_changes": large_changes.main,
    "growth": growth.main,
}

# Go's default, for control planes too: those of tests have one processor.
os.environ.setdefault("GOMAXPROCS", str(len(os.sched_getaffinity(0))))
for name in sys.argv[1:] or PARTS:
    print(f"\n# {name}", flush=True)
    PARTS[name]()
