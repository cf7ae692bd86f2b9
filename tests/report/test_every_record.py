"""For any content of an event, also of future ones: neither its line, nor its JSON, nor its
Kubernetes event repeats a secret.
"""

from __future__ import annotations

import orjson
import pytest

from gitops_ds.core.events.base import Event
from gitops_ds.notify import log_lines
from gitops_ds.notify.kube_events import EventRecorder, EventSeries, InvolvedObject
from gitops_ds.service.kube_event_writer import body_of
from tests.report.events import DATA, PASSWORD, TOKEN, concrete, made, samples

STATE = InvolvedObject("v1", "ConfigMap", "gitops-ds", "gitops-ds-x")


@pytest.mark.parametrize("kind", concrete(), ids=lambda kind: kind.__name__)
def test_no_line_and_no_json_repeats_a_secret(kind: type[Event]) -> None:
    for event in samples(kind):
        written = (log_lines.line(event) or "") + orjson.dumps(log_lines.as_json(event)).decode()
        for one in EventRecorder(STATE).kube_events(event):
            written += body_of(EventSeries(one, "id", 1, 0.0, 0.0))["message"]
        assert [secret for secret in (PASSWORD, TOKEN, DATA) if secret in written] == []
        assert "\n" not in written
        assert event.level in log_lines.LEVELS


def test_the_secrets_are_in_the_events() -> None:
    full = [
        kind
        for kind in concrete()
        if any(secret in repr(made(kind, 0)) for secret in (PASSWORD, DATA))
    ]
    assert len(full) > 20


# The message of a skipped object begins with its name.
_NAMED_BY_THE_MESSAGE = {"NotApplied", "ChangeSkipped"}


@pytest.mark.parametrize("kind", concrete(), ids=lambda kind: kind.__name__)
def test_a_line_of_the_log_has_time_level_and_object_once(kind: type[Event]) -> None:
    event = made(kind, 0)
    line = log_lines.dated(event)
    if not line:
        return
    time, level, text = line.split(maxsplit=2)
    assert (time, level) == ("1970-01-01T00:00:01Z", str(event.level))
    assert not text.startswith(("warning:", "error:", "info:"))
    if event.about is not None and kind.__name__ not in _NAMED_BY_THE_MESSAGE:
        assert text.count(str(event.about)) >= 1
