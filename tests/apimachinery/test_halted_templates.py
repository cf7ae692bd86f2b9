"""The memory of halted templates on a DaemonSet."""

from __future__ import annotations

import msgspec
import pytest

from gitops_ds.core import names
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import Body
from gitops_ds.core.rollouts.proven_templates import (
    HaltedTemplate,
    StopKind,
    TemplateHistory,
    TemplateProof,
)
from gitops_ds.core.rollouts.staged_rollout import Halt, RolloutRecord, RolloutTarget
from gitops_ds.rollouts.state import halted_templates, keys, proofs


def target(hash: str, at: float | None, commit: str = "c" * 40) -> Revision:
    halt = None if at is None else Halt(at, "canary", "CrashLoopBackOff\non n1")
    record = msgspec.json.encode(RolloutRecord(halt=halt)).decode()
    metadata = {
        "labels": {names.ROLLOUT: hash},
        "annotations": {names.COMMIT: commit, keys.ROLLOUT_RECORD: record},
    }
    return Revision(f"agent-{hash}", 0, "", template(hash), {"metadata": metadata})


def template(image: str) -> Body:
    return {"spec": {"containers": [{"name": "agent", "image": image}]}}


def wanted(hash: str, image: str) -> RolloutTarget:
    return RolloutTarget(hash, template(image), hashes=frozenset({hash}))


def metadata(*kept: HaltedTemplate, uid: str = "1") -> dict[str, object]:
    return {"uid": uid, "annotations": {keys.HALTED: halted_templates.encoded(kept)}}


NOTHING = TemplateHistory()


def test_a_halt_is_remembered_after_its_revision_is_deleted() -> None:
    kept = halted_templates.remembered({}, [target("a", 5.0), target("b", None)], NOTHING)
    message = "stage canary: CrashLoopBackOff\\x0aon n1"
    identity = proofs.identity(template("a"))
    assert [(one.hash, one.commit, one.at) for one in kept] == [("a", "c" * 40, 5.0)]
    assert [(one.message, one.template) for one in kept] == [(message, identity)]
    known = halted_templates.remembered(metadata(*kept), (), NOTHING)
    annotations = {keys.HALTED: halted_templates.encoded(known)}
    assert "CrashLoopBackOff" in halted_templates.hold_reason(annotations, wanted("a", "x"))
    assert halted_templates.hold_reason(annotations, wanted("b", "b")) == ""
    assert halted_templates.hold_reason(annotations, wanted("", "b")) == ""


def test_an_annotation_puts_a_template_on_hold_and_states_no_halt() -> None:
    forged = HaltedTemplate("a", "c", 5.0, since="b", halt=Halt(5.0, "canary", "forged"))
    text = msgspec.json.encode((forged,)).decode()
    (held,) = halted_templates.remembered({"annotations": {keys.HALTED: text}}, (), NOTHING)
    assert (held.hash, held.halt, held.since) == ("a", None, "")


@pytest.mark.parametrize(
    "text",
    [
        '[{"hash":"a","commit":"c","at":5,"message":"put on hold"}]',
        '[{"hash":"a","commit":"c","at":5,"message":"put on hold","kind":"hold"}]',
    ],
)
def test_a_hold_of_an_earlier_version_and_one_without_a_reason_read_the_same(text: str) -> None:
    annotations = {keys.HALTED: text}
    (held,) = halted_templates.parse(annotations)
    assert halted_templates.is_hold(held)
    reason = halted_templates.hold_reason(annotations, wanted("a", "a"))
    assert reason == "this template was put on hold, with commit c"


def test_a_hold_keeps_the_reason_that_a_person_stated() -> None:
    stated = HaltedTemplate(
        "a", "c", 5.0, halted_templates.ON_HOLD, kind=StopKind.HOLD, reason="two\nlines"
    )
    known = TemplateHistory(uid="1")
    (held,) = halted_templates.remembered(metadata(stated), (), known)
    assert (held.reason, halted_templates.is_hold(held)) == ("two\nlines", True)
    reason = halted_templates.hold_reason(
        {keys.HALTED: halted_templates.encoded([held])}, wanted("a", "a")
    )
    assert reason == "this template was put on hold, with commit c: two\\x0alines"


def test_the_message_of_a_hold_that_only_the_annotation_has_states_no_halt() -> None:
    forged = HaltedTemplate("a", "c" * 40, 5.0, "stage canary: CrashLoopBackOff on n1")
    history = TemplateHistory(uid="1")
    kept = halted_templates.remembered(metadata(forged), (), history)
    annotations = {keys.HALTED: halted_templates.encoded(kept)}
    reason = halted_templates.hold_reason(annotations, wanted("a", "x"))
    assert reason == "this template was put on hold, with commit cccccccccccc"
    assert halted_templates.remembered(metadata(forged), (), NOTHING)[0].message == forged.message


def test_a_halted_template_is_held_by_its_content_too() -> None:
    kept = halted_templates.remembered({}, [target("a", 5.0)], NOTHING)
    annotations = {keys.HALTED: halted_templates.encoded(kept)}
    assert "CrashLoopBackOff" in halted_templates.hold_reason(annotations, wanted("other", "a"))


def test_a_halt_of_a_deleted_daemonset_is_known_to_the_one_created_again() -> None:
    kept = halted_templates.remembered(metadata(), [target("a", 5.0)], NOTHING)
    history = TemplateHistory(halted=kept, uid="1")
    assert halted_templates.remembered({}, (), history) == kept
    assert halted_templates.remembered({"uid": "2"}, (), history) == kept
    assert halted_templates.remembered({"uid": "1"}, (), history) == (), "a person released it"


def test_the_memory_is_bounded_and_keeps_the_newest() -> None:
    targets = [target(f"h{n}", float(n)) for n in range(50)]
    kept = halted_templates.remembered({}, targets, NOTHING)
    assert [one.at for one in kept] == [float(n) for n in range(49, 39, -1)]


def test_a_template_that_was_proved_after_all_leaves_the_memory() -> None:
    kept = halted_templates.remembered({}, [target("a", 5.0)], NOTHING)
    proven = TemplateHistory(TemplateProof(kept[0].template), uid="1")
    assert halted_templates.remembered(metadata(*kept), (), proven) == ()


def test_a_release_names_the_commit() -> None:
    one = HaltedTemplate("a", "1" * 40, 5.0)
    other = HaltedTemplate("b", "2" * 40, 6.0)
    annotations = {keys.HALTED: halted_templates.encoded((one, other))}
    assert halted_templates.named(annotations, "1111111") == {"a"}
    assert halted_templates.named(annotations, "3" * 40) == frozenset()
    left = halted_templates.without(annotations, {"a"})
    assert left is not None
    assert halted_templates.parse({keys.HALTED: left}) == (other,)
    assert halted_templates.without({keys.HALTED: left}, {"b"}) is None


def test_an_annotation_that_is_not_ours_holds_nothing() -> None:
    for text in ("", "{}", "[1]", "nonsense"):
        assert halted_templates.parse({keys.HALTED: text}) == ()
