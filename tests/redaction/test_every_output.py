"""Each way to write a secret out, through each output: none repeats it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from click.testing import CliRunner

from gitops_ds import cli
from gitops_ds.checks.advice import unwanted_content
from gitops_ds.core.change import Drifted, FieldChange
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.events import deployer
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.commits import NewCommit
from gitops_ds.core.events.drift import DriftDetected
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.redaction import objects, texts
from gitops_ds.core.redaction.support_dump import Redactor
from gitops_ds.core.skip_reasons import DriftPolicy, Skipped, SkipReason
from gitops_ds.deploy.plan import side_by_side_diff
from gitops_ds.notify import log_lines
from gitops_ds.notify.kube_events import InvolvedObject
from gitops_ds.notify.notifications import NotificationBuilder
from gitops_ds.ownership import diff
from gitops_ds.service.kube_event_writer import KubeEventWriter, body_of
from tests.gitservers import git
from tests.plan.world import daemonset

# Each secret holds a number that makes it another one on each side of a change. `{}` is where it
# goes.
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0{}In0.c2lnbmF0dXJlc2lnbg"
ENV = {
    "DB_PASSWORD": "hunter2-env-{}",
    "GITHUB_PAT": "hunter2-pat-{}",
    "MYSQL_DSN": "user:hunter2-dsn-{}@tcp(db:3306)/app",
    "CONNECTION": "user:hunter2-driver-{}@tcp(db:3306)/app",
    "DATABASE": "postgres://user:hunter2-url-{}@db/app",
    "AWS": "AKIA" + "ABCDEFGHIJKLMNO{}",
    "JSON": '{{"password": "hunter2-json-{}"}}',
    "SESSION": JWT,
    "HOOK": "https://hooks.example.com/services/hunter2-hook-{}",
}
ARGS = [
    ["--web.password=hunter2-arg-{}"],
    ["--token", "hunter2-next-{}"],
    ["sh", "-c", "curl -H 'Authorization: Bearer hunter2Bearer{}' https://api.example.com"],
    ["sh", "-c", "run --api-key hunter2-inline-{} --verbose"],
    ["--header=Authorization: Basic aHVudGVyMg{}=="],
    ["--listen=:8080", "--secret", "hunter2-after-{}"],
    ["-phunter2-attached-{}"],
    ["mysqldump", "-uroot", "-phunter2-program-{}"],
    ["sh", "-c", "mysql -u root -phunter2-script-{} -e 'select 1'"],
]
FILES = {
    "apiKey": "hunter2-data-{}",
    "config.yaml": "server: a\npassword: hunter2-file-{}\n",
    "app.ini": "db_password = hunter2-ini-{}\n",
}
PREFIXES = ("hunter2-", "hunter2Bearer", "AKIAABCDEF", "aHVudGVyMg", "eyJzdWIi")


def bodies(side: int) -> list[dict[str, Any]]:
    """One side of a change: a DaemonSet that writes every secret out, a ConfigMap and a Secret."""
    body = daemonset()
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": name, "value": text.format(side)} for name, text in ENV.items()]
    container["args"] = [arg.format(side) for args in ARGS for arg in args]
    body["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps(
            {"stringData": f"hunter2-last-{side}"}
        )
    }
    metadata = {"namespace": body["metadata"]["namespace"], "name": "written-out"}
    data = {name: text.format(side) for name, text in FILES.items()}
    return [
        body,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "stringData": {"user": f"hunter2-secret-{side}"},
        },
    ]


def leaks(text: str) -> list[str]:
    """Where a secret begins in it."""
    return [
        text[at - 60 : at + 40]
        for prefix in PREFIXES
        for at in range(len(text))
        if text.startswith(prefix, at)
    ]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Main has one side, the work tree another one with a mistake beside each secret."""
    directory = tmp_path_factory.mktemp("repository")
    git(directory, "init", "--quiet", "--initial-branch=main")
    for side in (1, 2):
        for body in bodies(side):
            (directory / f"{body['kind']}.json").write_text(json.dumps(body, indent=1))
        git(directory, "add", "--all")
        git(directory, "commit", "--quiet", "--message", f"side {side}")
    (directory / "inventory").mkdir()
    return directory


def run(repository: Path, *arguments: str) -> str:
    environment = {
        "GITOPS_DS_CACHE": str(repository.parent / "cache"),
        "GITHUB_ACTIONS": None,
        "GITHUB_STEP_SUMMARY": None,
    }
    done = CliRunner(env=environment).invoke(cli.cli, arguments, standalone_mode=False)
    assert done.exception is None, done.exception
    return done.output


@pytest.mark.sampled
@pytest.mark.parametrize(
    "format", ["text", "github", "gitlab", "sarif", "junit", "markdown", "json"]
)
def test_a_check_against_a_base(repository: Path, format: str) -> None:
    output = run(repository, "check", str(repository), "--base", "HEAD~1", "-o", format)
    assert not leaks(output)
    assert format in {"github", "gitlab", "sarif", "junit"} or "<redacted>" in output


@pytest.mark.sampled
@pytest.mark.parametrize("format", ["text", "json", "markdown"])
def test_a_check_and_a_plan_beside_a_cluster_that_drifted(
    repository: Path, tmp_path: Path, format: str
) -> None:
    live = [
        {**body, "metadata": {**body["metadata"], "uid": "1", "resourceVersion": "1"}}
        for body in bodies(3)
    ]
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": live}))
    assert not leaks(
        run(
            repository,
            "check",
            str(repository),
            "--base",
            "HEAD~1",
            "--snapshot",
            str(file),
            "-o",
            format,
        )
    )
    planned = run(
        repository, "plan", str(repository), "--adopt", "--snapshot", str(file), "-o", format
    )
    assert not leaks(planned)
    assert not leaks(run(repository, "plan", str(repository), "--simulate", "1", "-o", format))


def changes() -> Iterator[tuple[Key, FieldChange]]:
    for old, new in zip(bodies(1), bodies(2), strict=True):
        for change in diff.compare(old, new):
            yield Key("", old["kind"], "default", old["metadata"]["name"]), change


def test_fields_of_drift_and_of_the_page() -> None:
    result = list(changes())
    assert len(result) > len(ENV) + 3
    assert not leaks(str([objects.field(key, change) for key, change in result]))
    assert not leaks(str([objects.body(body) for body in bodies(1)]))
    assert not leaks(
        str(
            [
                side_by_side_diff.compare(old, new)
                for old, new in zip(bodies(1), bodies(2), strict=True)
            ]
        )
    )


SENTENCES = [
    *(
        f"the API server answered: env {name}={text}"
        for name, text in ENV.items()
        if name not in {"JSON", "HOOK"}
    ),
    ENV["HOOK"],
    *(f"container failed: {' '.join(args)}" for args in ARGS),
]
SOMEBODY = Key("apps", "DaemonSet", "default", "agent")


def records(text: str) -> Iterator[Event]:
    refusal = Skipped(SkipReason.REFUSED, text, SOMEBODY)
    yield deployer.ChangeSkipped(1.0, refusal)
    yield NewCommit(1.0, CommitId("a" * 40), text, text)
    yield DriftDetected(1.0, SOMEBODY, Drifted((), (), text, DriftPolicy.CORRECT), text)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_log_events_and_notifications(sentence: str) -> None:
    text = sentence.format(1)
    assert leaks(text)
    assert not leaks(texts.words(text))
    written = KubeEventWriter(
        cast("Cluster", None), InvolvedObject("v1", "ConfigMap", "gitops-ds", "state")
    )
    for event in records(text):
        assert not leaks(str(log_lines.line(event)) + str(log_lines.as_json(event)))
        assert not leaks(str(NotificationBuilder().handle(event, "repository")))
        written.handle(event)
    events = [body_of(written._queue.get_nowait()) for _ in range(written._queue.qsize())]
    assert len(events) >= 2
    assert not leaks(str(events))


def test_a_support_dump() -> None:
    redactor = Redactor()
    for body in bodies(1):
        redactor.learn(body)
    shown = orjson.dumps([redactor.document(body) for body in bodies(1)]).decode()
    assert not leaks(shown)
    assert not leaks(redactor.text("it was hunter2-env-1 and hunter2-secret-1"))


@pytest.mark.parametrize(
    "message",
    [
        "login failed, password: hunter2-colon-1 (try again)",
        "login failed with password=hunter2-equal-1, try again",
        "login failed, password := hunter2-assign-1",
        "ran agent --token hunter2-flag-1 and failed",
        "login failed, password: 'hunter2-quoted-1 and more'",
        'login failed, "password": "hunter2-json-1"',
        "token: hunter2-one-1; password: hunter2-two-1",
        "two lines\nand then token: hunter2-line-1 here",
    ],
)
def test_a_secret_in_the_middle_of_a_sentence(message: str) -> None:
    """The message of an event, which is any text of the program that failed."""
    event = {"kind": "Event", "message": message, "note": message, "series": [message]}
    for redactor in (Redactor(), Redactor()):
        assert not leaks(redactor.text(message))
        assert not leaks(orjson.dumps(redactor.document(event)).decode())
    assert not leaks(texts.words(message))


def test_an_ordinary_word_after_a_name_hides_no_other_part_of_a_support_dump() -> None:
    redactor = Redactor()
    redactor.learn({"message": "the secret: Forbidden"})
    assert redactor.text("the request is Forbidden") == "the request is Forbidden"


def test_every_secret_of_the_rule_is_redacted_in_every_output() -> None:
    """DS514 complains of what certainly is one: all of it is hidden."""
    body = bodies(1)[0]
    container = body["spec"]["template"]["spec"]["containers"][0]
    complained: list[Any] = []
    for violation in unwanted_content.no_secrets.check(body):
        found: Any = body
        for step in violation.path:
            found = found[step]
        complained.append(found)
    assert len(complained) >= 5
    shown = str(objects.value(container))
    assert not [one for one in complained if one in shown]


@pytest.mark.parametrize(
    "harmless",
    [
        {"name": "LOG_LEVEL", "value": "info"},
        {"name": "TOKEN_FILE", "value": "/var/run/token"},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "password"}}},
        {
            "args": [
                "--token-file=/var/run/token",
                "--listen=:8080",
                "--web.config=/etc/web.yaml",
                "--secret-name",
                "keys",
                "-port=8080",
                "-p8080:80",
                "-profile",
                "-p",
                "-path=/etc/agent2",
                "-p127.0.0.1:80",
            ]
        },
        {"command": ["mysql", "-P", "3306", "-p$(PASSWORD)", "--protocol=tcp"]},
        {"secretName": "keys", "automountServiceAccountToken": False, "expirationSeconds": 3600},
        {"image": "registry.example/agent@sha256:" + "0123456789abcdef" * 4},
        {"path": "https://git@github.com/acme/agents.git"},
    ],
)
def test_text_that_only_mentions_secrets_is_kept(harmless: Mapping[str, Any]) -> None:
    assert objects.value(harmless) == harmless


@pytest.mark.parametrize(
    "sentence",
    [
        "--token must be given with --server",
        "webhook: the delivery of github was refused",
        "Secret default/keys: its owner is another",
        "the option web.password looks like a secret",
        "basic authentication failed; bearer token expected",
        "secret: not found",
    ],
)
def test_sentences_about_secrets_stay(sentence: str) -> None:
    assert texts.words(sentence) == sentence
