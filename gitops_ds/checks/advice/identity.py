"""Advice about the identity of an agent: its namespace, its labels, its selector."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gitops_ds.checks.engine.rule import SPEC, Spec, Violation, of_daemonsets, rule, section
from gitops_ds.core import names
from gitops_ds.core.finding import Fix, Mend, Severity, advice
from gitops_ds.core.objects import Body, Path, group_of
from gitops_ds.kube.apimachinery import builtin_resources

_LABELS: Final[Path] = ("metadata", "labels")
_SELECTOR: Final[Path] = (*SPEC, "selector")

# Label names without their domain whose values change with a release, an environment or a date.
_RELEASE: Final = (
    "version",
    "chart",
    "hash",
    "checksum",
    "config-hash",
    "commit",
    "sha",
    "git-sha",
    "revision",
    "build",
    "tag",
    "image",
)
_CONTROLLERS: Final = ("pod-template-hash", "controller-revision-hash", "pod-template-generation")
_VOLATILE: Final = frozenset(
    (*_RELEASE, *_CONTROLLERS, "date", "timestamp", "env", "environment", "stage")
)


@rule(advice("DS014", Severity.WARNING, "object is in the default namespace"))
def own_namespace(body: Body) -> Iterator[Violation]:
    """An object is in the namespace default, where rendering puts those without a namespace."""
    if section(body.get("metadata")).get("namespace") == "default":
        kind = builtin_resources.RESOURCES.get((group_of(body), str(body.get("kind"))))
        if kind is None or kind.namespaced:
            yield Violation(
                ("metadata", "namespace"),
                "the namespace is default, which agents share with everything else: set another "
                "one in metadata.namespace, or -n NAMESPACE for objects without one",
            )


@rule(advice("DS015", Severity.INFO, "recommended labels are missing"))
@of_daemonsets
def common_labels(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """The recommended labels are missing."""
    metadata = section(body.get("metadata"))
    labels, name = section(metadata.get("labels")), metadata.get("name")
    label = labels.get("app.kubernetes.io/name") or name
    expected = {
        "app.kubernetes.io/name": label,
        "app.kubernetes.io/part-of": label,
        "app.kubernetes.io/managed-by": names.FIELD_MANAGER,
    }
    missing = {key: value for key, value in expected.items() if not labels.get(key)}
    if missing:
        words = ", ".join(f"{key}: {value}" for key, value in missing.items())
        mends = (
            tuple(Mend((*_LABELS, key), value) for key, value in missing.items())
            if labels
            else (Mend(_LABELS, missing),)
        )
        message = f"recommended labels are missing: {', '.join(missing)}"
        yield Violation(_LABELS if labels else ("metadata",), message, Fix(words, mends, safe=True))


@rule(advice("DS105", Severity.WARNING, "selector has labels that change"))
@of_daemonsets
def lasting_selector(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """The selector, which is immutable, has a label that changes."""
    selector = section(spec.get("selector"))
    for key in section(selector.get("matchLabels")):
        if _volatile(key):
            yield _violation((*_SELECTOR, "matchLabels", key), key)
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        if _volatile(str(section(expression).get("key"))):
            yield _violation((*_SELECTOR, "matchExpressions", index), expression["key"])


def _volatile(key: str) -> bool:
    return key.rpartition("/")[2].lower() in _VOLATILE


def _violation(path: Path, key: str) -> Violation:
    message = (
        f"the label {key} changes over time, and a selector is immutable: set it only in the "
        f"labels of the pod template"
    )
    return Violation(
        path,
        message,
        Fix(
            f"select without {key} (an existing DaemonSet must be recreated)",
            (Mend(path),),
        ),
    )
