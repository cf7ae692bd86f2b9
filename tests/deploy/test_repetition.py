"""A reconciliation that changes nothing has no line in the log after the first."""

from __future__ import annotations

from gitops_ds.core.events.base import Event
from gitops_ds.core.events.deployer import Reconciled
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.deploy.reports import DeduplicatingEmitter
from gitops_ds.notify import log_lines

FIRST, SECOND = CommitId("a" * 40), CommitId("b" * 40)
WAITS = Skipped(SkipReason.REFUSED, "DaemonSet b waits", Key("apps", "DaemonSet", "n", "b"))
DENIED = Skipped(SkipReason.REFUSED, "DaemonSet b is denied", Key("apps", "DaemonSet", "n", "b"))


def test_a_commit_applied_in_part_is_logged_once_until_something_changes() -> None:
    events: list[Event] = []
    emitter = DeduplicatingEmitter(events.append, lambda: 0.0)
    lines = [
        (FIRST, 1, WAITS),
        (FIRST, 0, WAITS),
        (FIRST, 0, WAITS),
        (FIRST, 0, DENIED),
        (SECOND, 0, DENIED),
        (SECOND, 1, DENIED),
    ]
    for commit, writes, refusal in lines:
        emitter.handle(Reconciled(0.0, commit, writes, (refusal,)))
    assert len(events) == len(lines)  # metrics count each
    assert [bool(log_lines.line(event)) for event in events] == [
        True, False, False, True, True, True,
    ]  # fmt: skip
