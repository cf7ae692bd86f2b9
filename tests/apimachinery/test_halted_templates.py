"""The memory of halted templates on a DaemonSet."""

from __future__ import annotations

import msgspec

from gitops_ds.apimachinery.rollouts import halted_templates
from gitops_ds.apimachinery.rollouts.halted_templates import HaltedTemplate
from gitops_ds.model import names
from gitops_ds.model.live import Revision
from gitops_ds.model.rollouts.staged_rollout import Halt, RolloutRecord


def target(hash: str, at: float | None, commit: str = "c" * 40) -> Revision:
    halt = None if at is None else Halt(at, "canary", "CrashLoopBackOff\non n1")
    record = msgspec.json.encode(RolloutRecord(halt=halt)).decode()
    metadata = {
        "labels": {names.ROLLOUT: hash},
        "annotations": {names.COMMIT: commit, names.ROLLOUT_RECORD: record},
    }
    return Revision(f"agent-{hash}", 0, "", {}, {"metadata": metadata})


def metadata(*kept: HaltedTemplate) -> dict[str, object]:
    return {"annotations": {names.HALTED: halted_templates.encoded(kept)}}


def test_a_halt_is_remembered_after_its_revision_is_deleted() -> None:
    kept = halted_templates.remembered({}, [target("a", 5.0), target("b", None)], ())
    assert kept == (HaltedTemplate("a", "c" * 40, 5.0, "stage canary: CrashLoopBackOff\\x0aon n1"),)
    assert halted_templates.remembered(metadata(*kept), (), ()) == kept
    annotations = {names.HALTED: halted_templates.encoded(kept)}
    assert "CrashLoopBackOff" in halted_templates.hold_reason(annotations, "a")
    assert halted_templates.hold_reason(annotations, "b") == ""
    assert halted_templates.hold_reason(annotations, "") == ""


def test_the_memory_is_bounded_and_keeps_the_newest() -> None:
    targets = [target(f"h{n}", float(n)) for n in range(50)]
    kept = halted_templates.remembered({}, targets, ())
    assert [one.at for one in kept] == [float(n) for n in range(49, 39, -1)]


def test_a_template_that_was_proved_after_all_leaves_the_memory() -> None:
    kept = halted_templates.remembered({}, [target("a", 5.0)], ())
    own = Revision("agent-a", 2, "a", {}, {})
    assert halted_templates.remembered(metadata(*kept), (), [own]) == ()


def test_a_release_names_the_commit() -> None:
    one = HaltedTemplate("a", "1" * 40, 5.0)
    other = HaltedTemplate("b", "2" * 40, 6.0)
    annotations = {names.HALTED: halted_templates.encoded((one, other))}
    assert halted_templates.named(annotations, "1111111") == {"a"}
    assert halted_templates.named(annotations, "3" * 40) == frozenset()
    left = halted_templates.without(annotations, {"a"})
    assert left is not None
    assert halted_templates.parse({names.HALTED: left}) == (other,)
    assert halted_templates.without({names.HALTED: left}, {"b"}) is None


def test_an_annotation_that_is_not_ours_holds_nothing() -> None:
    for text in ("", "{}", "[1]", "nonsense"):
        assert halted_templates.parse({names.HALTED: text}) == ()
