"""No format repeats a secret: by the place, the name or the look of a value."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from gitops_ds.checks.report import findings, formats
from gitops_ds.core.finding import Finding, Place
from gitops_ds.core.objects import Key
from gitops_ds.core.redaction import report as redaction_report
from gitops_ds.core.redaction.patterns import HIDDEN
from gitops_ds.core.values import replace
from tests.plan.world import daemonset
from tests.report import made
from tests.report.made import finding

SECRET = Key("", "Secret", "logging", "keys")
VALUE = "correct-horse"


def secret(**data: Any) -> dict[str, Any]:
    metadata = {"namespace": "logging", "name": "keys"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **data}


def agent(**variable: Any) -> dict[str, Any]:
    return daemonset(namespace="logging", containers=[{"name": "agent", "env": [variable]}])


ENV = ("spec", "template", "spec", "containers", 0, "env", 0, "value")


@pytest.mark.parametrize("format", formats.ReportFormat)
@pytest.mark.parametrize(
    "body",
    [
        secret(stringData={"user": VALUE}),
        secret(data={"user": base64.b64encode(VALUE.encode()).decode()}),
        secret(stringData={"file": f"one: two\n  {VALUE}\n"}),
        agent(name="DB_PASSWORD", value=VALUE),
        {**secret(data={"api-key": VALUE}), "kind": "ConfigMap"},
    ],
)
def test_a_known_secret_is_in_no_report(format: formats.ReportFormat, body: dict[str, Any]) -> None:
    reported = finding(message=f"there is {VALUE} in it", place=Place("a.yaml", 1, 1))
    hidden = redaction_report.found_in([body])
    answered = [(finding(line=9), f"it is {VALUE}")]
    report = made.report(
        reported,
        hidden=hidden,
        files={"a.yaml": f"args: [{VALUE}]\n".encode()},
        suppressed=answered,
    )
    changed = findings.with_changes(
        report, [findings.ReportedChange((), (f"- {VALUE}",))], {"changes": [{"old": VALUE}]}
    )
    written = formats.written(format, changed, made.about())
    assert VALUE not in written
    assert "there is" in written


@pytest.mark.parametrize(
    ("reported", "body"),
    [
        (finding(object=SECRET, path=("data", "pin")), secret(data={"pin": 12})),
        (finding(path=ENV), agent(name="PIN_TOKEN", value=12)),
    ],
)
def test_a_short_secret_is_hidden_at_its_place(reported: Finding, body: dict[str, Any]) -> None:
    hidden = redaction_report.found_in([body])
    reported = replace(reported, message='must be a string, not the number 12: write "12"')
    report = made.report(reported, hidden=hidden, files={made.FILE: b"\n\n    pin: 12\n"})
    assert "12" not in formats.written(formats.ReportFormat.TEXT, report, made.about())
    elsewhere = made.report(finding(path=("spec",), message="12 nodes"), hidden=hidden)
    assert elsewhere.findings[0].message == "12 nodes"


WRONG_TYPES: list[tuple[dict[str, Any], tuple[str | int, ...]]] = [
    (agent(name="DB_PASSWORD", value={"x": VALUE}), (*ENV, "x")),
    (agent(name="DB_PASSWORD", value=[VALUE]), (*ENV, 0)),
    (agent(name="DB_PASSWORD", value={"x": {"y": VALUE}}), ENV),
    ({**daemonset(namespace="logging"), "password": {"x": VALUE}}, ("password", "x")),
    ({**daemonset(namespace="logging"), "password": [VALUE]}, ("password", 0)),
]


@pytest.mark.parametrize("format", formats.ReportFormat)
@pytest.mark.parametrize(("body", "path"), WRONG_TYPES)
def test_a_secret_of_the_wrong_type_is_in_no_report(
    format: formats.ReportFormat, body: dict[str, Any], path: tuple[str | int, ...]
) -> None:
    reported = finding(
        path=path, message=f'must be a string, not "{VALUE}"', place=Place("a", 2, 6)
    )
    hidden = redaction_report.found_in([body])
    report = made.report(reported, hidden=hidden, files={"a": f"x:\n  x: {VALUE}\n".encode()})
    assert VALUE not in formats.written(format, report, made.about())


def test_a_password_in_a_url_is_hidden_and_the_url_is_not() -> None:
    report = made.report(
        finding(message="https://dana:horse@example.com/x and https://example.com:8080/y@z")
    )
    assert (
        report.findings[0].message
        == f"https://{HIDDEN}@example.com/x and https://example.com:8080/y@z"
    )


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  password: horse", f"  password: {HIDDEN}"),
        ("  - DB_PASSWORD: 'horse'", f"  - DB_PASSWORD: {HIDDEN}"),
        ('  "apiKey": "horse",', f'  "apiKey": {HIDDEN}'),
        ("  password: horse # forgotten", f"  password: {HIDDEN}"),
        ("  - {name: DB_PASSWORD, value: {x: horse}}", f"  - {{name: DB_PASSWORD, value: {HIDDEN}"),
        ("  - {name: DB_PASSWORD, value: [horse]}", f"  - {{name: DB_PASSWORD, value: {HIDDEN}"),
        ("  - {value: {x: horse}, name: DB_PASSWORD}", f"  - {{value: {HIDDEN}"),
        (
            '  {"name": "DB_PASSWORD", "value": 5000}',
            f'  {{"name": "DB_PASSWORD", "value": {HIDDEN}',
        ),
        ("  env: [{name: TOKEN, value: horse}]", f"  env: [{{name: TOKEN, value: {HIDDEN}"),
        ("  {user: dana, password: horse}", f"  {{user: dana, password: {HIDDEN}"),
        (
            "  {on: true, token: true, password: horse}",
            f"  {{on: true, token: true, password: {HIDDEN}",
        ),
        ("  password: {x: horse}", f"  password: {HIDDEN}"),
        ("  password: [horse, dog]", f"  password: {HIDDEN}"),
        ("  - name: DB_PASSWORD", None),
        ("  password: |", None),
        ("  password: *anchor", None),
        ("  secret: {secretName: keys}", None),
        ("  automountServiceAccountToken: false", None),
        ("  secretName: keys", None),
        ("  secretKeyRef:", None),
        ("  secretKeyRef: {name: keys}", None),
        ("  tokenPath: /var/run/token", None),
        ("  image: agent:1", None),
    ],
)
def test_a_line_shows_no_value_with_the_name_of_a_secret(line: str, shown: str | None) -> None:
    assert redaction_report.ReportSecrets().in_line(finding(object=None), line) == (shown or line)


@pytest.mark.parametrize(
    "file",
    [
        b"kind: Secret\nstringData:\n  a: b c\n",
        b'{"kind": "Secret",\n "data": {}}',
        b"a: b\n---\nkind: 'Secret'\n",
    ],
)
def test_a_file_with_a_secret_is_not_quoted(file: bytes) -> None:
    report = made.report(
        finding("DS001", object=None, place=Place("a.yaml", 3, 3)), files={"a.yaml": file}
    )
    assert formats.written(formats.ReportFormat.TEXT, report, made.about()).count("\n") == 2


def test_ordinary_words_and_references_stay() -> None:
    body = secret(stringData={"user": "admin", "on": "true", "from": "$(OTHER)"})
    assert redaction_report.found_in([body]).values == frozenset()
    assert (
        redaction_report.found_in([agent(name="TOKEN_FILE", value="/var/run/token")]).values
        == frozenset()
    )


def test_names_stay_even_where_a_secret_has_the_same() -> None:
    report = made.report(
        finding(), hidden=redaction_report.found_in([secret(stringData={"user": "agent"})])
    )
    assert report.findings[0].object == made.AGENT


def test_a_hundred_thousand_secrets_are_redacted_quickly() -> None:
    bodies = [
        secret(
            stringData={str(at): f"value-{at}" for at in range(5_000)},
            data={"long": "\n".join(map(str, range(10**5, 2 * 10**5)))},
        )
    ]
    hidden = redaction_report.found_in(bodies)
    assert len(hidden.values) == 1_000
    assert hidden.at(finding(object=SECRET, path=("data", "4999")))
