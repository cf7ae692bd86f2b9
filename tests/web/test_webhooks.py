"""What each forge documents of its deliveries: signed, unsigned, wrong, repeated; and invalid
bodies.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gitops_ds.core.deployer_state import Push
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.requests import WebhookResult
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.service.web import webhook_payloads, webhooks
from gitops_ds.service.web.webhook_payloads import PushEvent

SECRET = b"It's a Secret to Everybody"
COMMIT, OLD, NONE = "ab" * 20, "cd" * 20, "0" * 40
NOW = 1_800_000_000.0


def digest(body: bytes, secret: bytes = SECRET) -> str:
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


def standard(
    body: bytes, secret: bytes = SECRET, id: str = "msg-1", at: float = NOW
) -> dict[str, str]:
    key = base64.b64decode(secret[6:]) if secret.startswith(b"whsec_") else secret
    signature = base64.b64encode(
        hmac.new(key, f"{id}.{at:.0f}.".encode() + body, hashlib.sha256).digest()
    ).decode()
    return {
        "webhook-id": id,
        "webhook-timestamp": f"{at:.0f}",
        "webhook-signature": f"v1,{signature}",
        "X-Gitlab-Event": "Push Hook",
    }


def headers_of(
    forge: str,
    body: bytes,
    secret: bytes = SECRET,
    id: str = "72d3162e-cc78-11e3-81ab-4c9367dc0958",
) -> dict[str, str]:
    """What the forge sends with a push."""
    right = digest(body, secret)
    sha1 = hmac.new(secret, body, hashlib.sha1).hexdigest()
    github = {
        "X-GitHub-Delivery": id,
        "X-GitHub-Event": "push",
        "X-Hub-Signature": f"sha1={sha1}",
        "X-Hub-Signature-256": f"sha256={right}",
    }
    return {
        "github": github,
        "gitea": {
            **github,
            "X-Gitea-Delivery": id,
            "X-Gitea-Event": "push",
            "X-Gitea-Signature": right,
            "X-Gogs-Signature": right,
        },
        "forgejo": {
            **github,
            "X-Gitea-Signature": right,
            "X-Forgejo-Delivery": id,
            "X-Forgejo-Signature": right,
        },
        "bitbucket": {
            "X-Event-Key": "repo:push",
            "X-Hub-Signature": f"sha256={right}",
            "X-Request-UUID": f"{{{id}}}",
        },
        "gitlab": {
            "X-Gitlab-Event": "Push Hook",
            "X-Gitlab-Token": secret.decode(),
            "X-Gitlab-Event-UUID": id,
        },
        "gitlab-signed": standard(body, secret, id),
        "generic": {"X-Signature": f"sha256={right}"},
        "generic-id": {"X-Signature": f"sha256={right}", "X-Delivery": id},
        "bearer": {"Authorization": f"Bearer {secret.decode()}", "X-Delivery": id},
    }[forge]


FORGES = (
    *ForgeKind,
    "bitbucket",
    "gitlab-signed",
    "generic",
    "generic-id",
    "bearer",
)
NAMED = {"gitlab-signed": "gitlab", "generic-id": "generic", "bearer": "generic"}

GITHUB = {
    "ref": "refs/heads/main",
    "before": OLD,
    "after": COMMIT,
    "repository": {
        "full_name": "Platform/Node-Agents",
        "clone_url": "https://git.example.com/Platform/Node-Agents.git",
        "ssh_url": "git@git.example.com:Platform/Node-Agents.git",
        "html_url": "https://git.example.com/Platform/Node-Agents",
        "default_branch": "main",
        "homepage": None,
    },
    "commits": [{"id": COMMIT}],
}
GITLAB = {
    "object_kind": "push",
    "ref": "refs/heads/main",
    "after": COMMIT,
    "checkout_sha": COMMIT,
    "project": {
        "path_with_namespace": "platform/node-agents",
        "git_http_url": "https://git.example.com/platform/node-agents.git",
        "git_ssh_url": "git@git.example.com:platform/node-agents.git",
        "default_branch": "main",
    },
    "repository": {
        "name": "Node agents",
        "url": "git@git.example.com:platform/node-agents.git",
        "homepage": "https://git.example.com/",
    },
}
BITBUCKET = {
    "repository": {
        "full_name": "platform/node-agents",
        "links": {
            "html": {"href": "https://git.example.com/platform/node-agents"},
            "self": {"href": "https://api.example.com/x"},
        },
    },
    "push": {
        "changes": [
            {"old": None, "new": {"type": "branch", "name": "main", "target": {"hash": COMMIT}}}
        ]
    },
}
DATA_CENTER = {
    "repository": {
        "slug": "node-agents",
        "links": {
            "clone": [
                {"href": "ssh://git@git.example.com:7999/platform/node-agents.git", "name": "ssh"}
            ],
            "self": [{"href": "https://x/y"}],
        },
    },
    "changes": [{"ref": {"id": "refs/heads/main"}, "fromHash": OLD, "toHash": COMMIT}],
}
PAYLOADS: Mapping[str, Any] = {
    "github": GITHUB,
    "gitlab": GITLAB,
    "bitbucket": BITBUCKET,
    "data-center": DATA_CENTER,
}


class Scene:
    """The webhook of two repositories, each with the common secret; the second has one of its own
    as well.
    """

    def __init__(self) -> None:
        self.now, self.events = NOW, list[Event]()
        self.woken: dict[str, list[Push]] = {"agents.eu": [], "other": []}
        first = ("https://git.example.com/platform/node-agents", "main", (SECRET,))
        second = ("ssh://git@git.example.com/platform/other.git", "", (b"another secret", SECRET))
        self.targets = [
            webhooks.WebhookTarget(
                id, (address,), branch, functools.partial(tuple, secrets), self.woken[id].append
            )
            for id, (address, branch, secrets) in zip(self.woken, (first, second), strict=True)
        ]
        self.hooks = webhooks.Hooks(lambda: self.targets, self.events.append, lambda: self.now)

    def send(
        self, headers: Mapping[str, str], body: bytes, id: str = ""
    ) -> webhooks.WebhookResponse:
        return self.hooks.judge(CIMultiDict(headers), body, id)


def body_of(payload: Any) -> bytes:
    return json.dumps(payload).encode()


@pytest.mark.parametrize("forge", FORGES)
def test_what_a_forge_signs_is_believed_once(forge: str) -> None:
    scene, body = Scene(), body_of(GITHUB)
    headers = headers_of(forge, body)
    first = scene.send(headers, body)
    assert (first.status, first.forge, first.woken) == (
        202,
        NAMED.get(forge, forge),
        ("agents.eu",),
    )
    assert scene.woken == {"agents.eu": [Push(COMMIT)], "other": []}  # type: ignore[arg-type]
    again = scene.send(headers, body)
    assert (again.status, again.result) == (409, WebhookResult.REPLAYED)
    assert len(scene.woken["agents.eu"]) == 1


@pytest.mark.parametrize("forge", ["github", "gitea", "forgejo", "bitbucket", "generic-id"])
def test_a_replay_under_another_id_is_known_by_its_signature(forge: str) -> None:
    scene, body = Scene(), body_of(GITHUB)
    assert scene.send(headers_of(forge, body), body).status == 202
    assert scene.send(headers_of(forge, body, id="another-id"), body).status == 409


@pytest.mark.parametrize("forge", FORGES)
def test_another_secret_another_body_or_no_proof_is_refused(forge: str) -> None:
    scene, body = Scene(), body_of(GITHUB)
    assert scene.send(headers_of(forge, body, b"wrong"), body).status == 401
    if forge not in ("gitlab", "bearer"):  # a token does not depend on the body
        assert scene.send(headers_of(forge, body), body + b" ").status == 401
    for name in headers_of(forge, body):
        broken = {**headers_of(forge, body), name: "é\udce9"}
        assert scene.send(broken, body).status in (202, 401, 409)
    assert scene.send({}, body).status == 401


def test_the_digest_of_an_older_hash_is_not_proof() -> None:
    body = body_of(GITHUB)
    sha1 = hmac.new(SECRET, body, hashlib.sha1).hexdigest()
    for signature in (f"sha1={sha1}", sha1, f"sha256={sha1}", "sha256=", "", "sha256"):
        assert (
            Scene()
            .send(
                {
                    "X-Hub-Signature": signature,
                    "X-Hub-Signature-256": signature,
                    "X-Signature": signature,
                },
                body,
            )
            .status
            == 401
        )


def test_an_empty_token_is_not_proof_even_beside_an_empty_secret() -> None:
    for headers in (
        {"X-Gitlab-Token": ""},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer"},
        {"Authorization": ""},
    ):
        assert webhook_payloads.proof(CIMultiDict(headers), b"{}", [b""], NOW) is None


@pytest.mark.parametrize("off", [-301.0, 301.0])
def test_a_signed_time_that_is_far_off_is_refused(off: float) -> None:
    scene, body = Scene(), body_of(GITLAB)
    assert scene.send(standard(body, at=NOW + off), body).status == 401
    assert scene.send(standard(body, at=NOW + off / 2), body).status == 202


def test_a_signing_token_in_gitlabs_own_form_is_taken() -> None:
    secret, body = (
        b"whsec_" + base64.b64encode(b"thirty two bytes of real entropy"),
        body_of(GITLAB),
    )
    assert webhook_payloads.proof(CIMultiDict(standard(body, secret)), body, [secret], NOW)
    both = standard(body, secret)
    both["webhook-signature"] = "v1,AAAA " + both["webhook-signature"]  # while a token is exchanged
    assert webhook_payloads.proof(CIMultiDict(both), body, [secret], NOW)
    assert not webhook_payloads.proof(
        CIMultiDict({**both, "webhook-id": "msg-2"}), body, [secret], NOW
    )


def test_two_secrets_in_a_file_are_both_right() -> None:
    body = body_of(GITHUB)
    for secret in (SECRET, b"the next one"):
        assert webhook_payloads.proof(
            CIMultiDict(headers_of("github", body, secret)), body, [SECRET, b"the next one"], NOW
        )


@pytest.mark.parametrize("payload", PAYLOADS)
def test_the_repository_and_its_commit_are_found_in_every_forges_payload(payload: str) -> None:
    news = webhook_payloads.push_event(CIMultiDict(), body_of(PAYLOADS[payload]))
    assert news.commit == COMMIT
    assert webhook_payloads.concerns(news, "main")
    assert not webhook_payloads.concerns(news, "release")
    for address in (
        "https://git.example.com/platform/node-agents",
        "https://git.example.com:8443/platform/node-agents.git",
        "ssh://git@git.example.com:7999/platform/node-agents.git",
        "git@git.example.com:platform/node-agents",
    ):
        assert webhook_payloads.means(news, [address]), address
    for address in (
        "https://git.example.com/platform/node-agents2",
        "https://git.example.com/node-agents",
        "https://git.example.com/",
    ):
        assert not webhook_payloads.means(news, [address]), address


def test_a_host_that_the_payload_names_must_be_ours_unless_the_payload_has_only_the_name() -> None:
    elsewhere = PushEvent(("https://evil.example.com/platform/node-agents",))
    assert not webhook_payloads.means(elsewhere, ["https://git.example.com/platform/node-agents"])
    assert webhook_payloads.means(
        PushEvent(("platform/node-agents",)), ["https://git.internal/platform/node-agents.git"]
    )
    assert not webhook_payloads.means(
        PushEvent(("", "/", "https://git.example.com", "https://[", "x://")),
        ["https://git.example.com/a", "a:/"],
    )


@pytest.mark.parametrize(
    ("payload", "commit"),
    [
        ({"after": NONE, "ref": "refs/heads/gone"}, None),
        ({"repository": "platform/node-agents", "commit": COMMIT}, COMMIT),
        ({"commit": {"id": 5}, "sha": "x"}, None),
        ({"push": {"changes": [{"new": None}]}}, None),
        ({"changes": {"labels": 1}}, None),
        ({"after": "a" * 64}, "a" * 64),
        ({}, None),
    ],
)
def test_the_commit_of_a_payload(payload: Any, commit: str | None) -> None:
    assert webhook_payloads.push_event(CIMultiDict(), body_of(payload)).commit == commit


WRONG = [
    *(
        b"",
        b"[]",
        b"5",
        b'"text"',
        b"null",
        b"{",
        b"\xff\xfe",
        b"payload=%7B%7D",
        b"[" * 5000,
        b'{"a":' * 5000,
    )[1:],
    *(body_of({"repository": value}) for value in (5, [], ["x"], True)),
    *(body_of({"repository": {"clone_url": value}}) for value in (5, [], {})),
    *(body_of({"repository": {"links": value}}) for value in (5, [], "x")),
    *(body_of({"project": value}) for value in (5, "x", [])),
    *(body_of({"ref": value}) for value in (5, [], {})),
    *(
        body_of({"after": value})
        for value in (
            5,
            [],
            {},
            "main",
            COMMIT[:12],
            COMMIT.upper(),
            "--upload-pack=x",
            COMMIT + "\n",
        )
    ),
    *(body_of({"push": value}) for value in (5, "x", [])),
    *(body_of({"push": {"changes": value}}) for value in (5, "x", [5])),
    body_of({"changes": [{"toHash": "ø"}]}),
]


@pytest.mark.parametrize("body", WRONG)
def test_a_body_of_the_wrong_form_is_a_bad_request_and_wakes_no_deployer(body: bytes) -> None:
    scene = Scene()
    answer = scene.send(headers_of("github", body), body)
    assert (answer.status, answer.result) == (400, WebhookResult.MALFORMED)
    assert answer.words
    assert scene.woken == {"agents.eu": [], "other": []}


@pytest.mark.parametrize("kind", ["html", "self", "clone"])
def test_few_links_of_a_payload_are_compared(kind: str) -> None:
    """A body of a mebibyte has 50,000, and the event loop is that of all repositories."""
    links = [{"href": f"https://git.example.com/{number}"} for number in range(1000)]
    body = body_of({"repository": {"links": {kind: links}}})
    assert len(webhook_payloads.push_event(CIMultiDict(), body).repositories) == 8


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.just(COMMIT),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "repository",
                    "project",
                    "push",
                    "changes",
                    "new",
                    "target",
                    "links",
                    "clone",
                    "html",
                    "after",
                    "ref",
                    "commit",
                    "toHash",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_no_json_causes_our_500(payload: Any) -> None:
    body = body_of(payload)
    assert Scene().send(headers_of("gitea", body), body).status in (202, 400)


@given(
    st.binary(max_size=60),
    st.dictionaries(
        st.sampled_from([name for f in FORGES for name in headers_of(f, b"")]), st.text(max_size=30)
    ),
)
def test_garbage_is_refused(body: bytes, headers: dict[str, str]) -> None:
    assert Scene().send(headers, body).status == 401


def test_a_name_with_any_letters_is_compared_as_it_is() -> None:
    news = webhook_payloads.push_event(
        CIMultiDict(),
        body_of(
            {
                "repository": {
                    "full_name": "ünï/códe",
                    "clone_url": "https://git.example.com/ünï/códe.git",
                }
            }
        ),
    )
    assert webhook_payloads.means(news, ["https://git.example.com/ünï/códe"])


def test_pings_are_answered_and_wake_no_deployer() -> None:
    for headers in ({"X-GitHub-Event": "ping"}, {"X-Event-Key": "diagnostics:ping"}):
        scene, body = Scene(), b'{"zen": "Design for failure.", "repository": {}}'
        answer = scene.send({**headers_of("github", body), **headers}, body)
        assert (answer.status, answer.result) == (202, WebhookResult.PING)
        assert scene.woken == {"agents.eu": [], "other": []}


def test_a_repository_that_is_not_ours_wakes_all_and_an_id_only_its_own() -> None:
    scene, body = Scene(), body_of({"repository": "another/repository"})
    assert scene.send(headers_of("generic", body), body).woken == ("agents.eu", "other")
    body = body_of(GITHUB)
    assert scene.send(headers_of("github", body), body, "other").woken == ("other",)
    assert scene.send(headers_of("github", body), body, "unknown").status == 401


def test_an_own_secret_wakes_only_its_own_repository() -> None:
    scene, body = Scene(), body_of(GITHUB)
    assert scene.send(headers_of("github", body, b"another secret"), body).woken == ("other",)


def test_a_push_to_another_branch_is_looked_at_and_not_waited_for() -> None:
    scene, body = Scene(), body_of({**GITHUB, "ref": "refs/heads/topic"})
    scene.send(headers_of("github", body), body)
    assert scene.woken["agents.eu"] == [Push(None)]


def test_deliveries_are_limited_and_come_through_again_later() -> None:
    scene = Scene()

    def send(number: int) -> int:
        body = body_of({**GITHUB, "number": number})
        return scene.send(headers_of("github", body, id=f"id-{number}"), body).status

    assert [send(n) for n in range(60)] == [202] * 60
    assert send(60) == 429
    assert send(0) == 409
    scene.now += 1
    # what was turned away was not remembered, and a replay did not count
    assert [send(60), send(61), send(62)] == [202, 202, 429]


def test_the_deliveries_of_one_repository_do_not_count_for_another() -> None:
    """Who has the secret of one repository delays none of another one."""
    scene = Scene()
    statuses = []
    for number in range(61):
        body = body_of({"number": number})
        headers = headers_of("github", body, b"another secret", f"{number}")
        statuses.append(scene.send(headers, body).status)
    assert statuses == [202] * 60 + [429]
    body = body_of(GITHUB)
    assert scene.send(headers_of("github", body), body).woken == ("agents.eu",)


@pytest.mark.parametrize("forge", FORGES)
def test_a_delivery_for_one_repository_may_be_repeated_for_another(forge: str) -> None:
    scene, body = Scene(), body_of(GITHUB)
    assert scene.send(headers_of(forge, body, b"another secret"), body).woken == ("other",)
    assert scene.send(headers_of(forge, body), body).woken == ("agents.eu",)
    assert scene.send(headers_of(forge, body), body).status == 409


def test_the_deliveries_of_one_repository_displace_none_of_another() -> None:
    scene, body = Scene(), body_of(GITHUB)
    assert scene.send(headers_of("github", body), body).woken == ("agents.eu",)
    for number in range(webhooks.REMEMBERED):
        scene.now += 1
        more = body_of({"number": number})
        headers = headers_of("github", more, b"another secret", f"{number}")
        assert scene.send(headers, more).woken == ("other",)
    assert scene.send(headers_of("github", body), body).status == 409


def test_a_replay_at_the_path_of_another_repository_with_the_same_secret_is_refused() -> None:
    scene, body = Scene(), body_of(GITHUB)
    assert scene.send(headers_of("github", body), body, "agents.eu").woken == ("agents.eu",)
    assert scene.send(headers_of("github", body), body, "other").status == 409


def test_a_restart_and_another_replica_accept_a_delivery_once_more() -> None:
    """Its effect is one more poll."""
    body, pushes = body_of(GITHUB), []
    for _ in range(2):
        process = Scene()
        statuses = [process.send(headers_of("github", body), body).status for _ in range(3)]
        assert statuses == [202, 409, 409]
        pushes.append(process.woken["agents.eu"])
    assert pushes == [[Push(COMMIT)], [Push(COMMIT)]]  # type: ignore[arg-type]


def test_what_is_remembered_is_bounded_and_ends_after_a_day() -> None:
    memory = webhooks.DeliveryLog()
    for number in range(3 * webhooks.REMEMBERED):
        assert not memory.is_replay((f"id {number}",), NOW)
        memory.record((f"id {number}",), NOW)
    assert memory.is_replay(("new", f"id {3 * webhooks.REMEMBERED - 1}"), NOW)
    assert len(memory._seen) <= webhooks.REMEMBERED
    assert not memory.is_replay(("id 0",), NOW)
    memory.record(("id 0",), NOW)
    assert memory.is_replay(("id 0",), NOW + webhooks.REMEMBERED_FOR - 1)
    assert not memory.is_replay(("id 0",), NOW + webhooks.REMEMBERED_FOR + 1)
