"""JSONPath templates give the text that kubectl prints for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gitops_ds.kube.apimachinery import jsonpath

# the document and the examples of https://kubernetes.io/docs/reference/kubectl/jsonpath/
DOCUMENT: dict[str, Any] = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
            "status": {
                "capacity": {"cpu": "4"},
                "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}],
            },
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2"},
            "status": {
                "capacity": {"cpu": "8"},
                "addresses": [
                    {"type": "LegacyHostIP", "address": "127.0.0.2"},
                    {"type": "another", "address": "127.0.0.3"},
                ],
            },
        },
    ],
    "users": [
        {"name": "myself", "user": {}},
        {"name": "e2e", "user": {"username": "admin", "password": "secret"}},
    ],
    "count": 3,
    "ready": True,
    "nothing": None,
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("kind is {.kind}", "kind is List"),
        ("{.kind}", "List"),
        ("{['kind']}", "List"),
        ("{$.kind}", "List"),
        ("{kind}", "List"),
        ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ("{.items[*]['metadata.name', 'kind']}", "None None"),
        ("{.users[0].name}", "myself"),
        ("{.users[-1].name}", "e2e"),
        ("{.users[0:1].name}", "myself"),
        ("{.users[::-1].name}", "e2e myself"),
        ("{.users[0,1].name}", "myself e2e"),
        ("{.users[7].name}", ""),
        ('{.users[?(@.name=="e2e")].user.password}', "secret"),
        ("{.users[?(@.name!='e2e')].name}", "myself"),
        ("{.users[?(@.user.username)].name}", "e2e"),
        ('{.items[*].status.addresses[?(@.type=="another")].address}', "127.0.0.3"),
        ("{.items[?(@.count > 2)].kind}", ""),
        ("{.items[0].metadata.labels.kubernetes\\.io/hostname}", "127.0.0.1"),
        ("{.items[0].metadata.labels['kubernetes.io/hostname']}", "127.0.0.1"),
        (
            "{range .items[*]}[{.metadata.name}, {.status.capacity.cpu}] {end}",
            "[127.0.0.1, 4] [127.0.0.2, 8] ",
        ),
        ('{range .users[*]}{.name}{"\\t"}{$.kind}{"\\n"}{end}', "myself\tList\ne2e\tList\n"),
        (
            "{range .items[*]}{range .status.addresses[*]}{@.address};{end}{end}",
            "127.0.0.1;127.0.0.2;127.0.0.3;",
        ),
        ("{.count}{'}'}{.ready}{.nothing}{.missing.key}", "3}true"),
        ("{.users[0]}", '{"name":"myself","user":{}}'),
        ("no braces", "no braces"),
    ],
)
def test_a_template_prints_what_kubectl_prints(template: str, text: str) -> None:
    assert jsonpath.render(jsonpath.template(template), DOCUMENT) == text


def test_the_document_itself() -> None:
    for template in ("{.}", "{@}", "{$}"):
        assert json.loads(jsonpath.render(jsonpath.template(template), DOCUMENT)) == DOCUMENT


@pytest.mark.parametrize(
    "template",
    [
        "{.a",
        "{range .a[*]}",
        "{end}",
        "{.a[}",
        '{"open}',
        "{.a[?(@.b==c)]}",
        "{.a .b}",
        "{.a[0:2:0]}",
        "{'a' 'b'}",
    ],
)
def test_an_invalid_template_is_refused(template: str) -> None:
    with pytest.raises(jsonpath.InvalidPath):
        jsonpath.template(template)


@pytest.mark.parametrize("text", ["{.metadata.name}", ".metadata.name", "metadata.name"])
def test_a_path_needs_no_braces(text: str) -> None:
    assert jsonpath.path(text).find(DOCUMENT["items"][0], None) == ["127.0.0.1"]
