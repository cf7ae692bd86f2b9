"""What the deployer announced about a DaemonSet: the annotations that its rollout reads, and its
origin.

Who may write the DaemonSet may write or remove all of them, under any name of a field manager. They
count only as they were announced, by the UID of the DaemonSet. Of the annotations of the rollout
the digest is known; owner, repository, path, commit and target are known as they are, and replace
another value in the cluster before anything is decided. A policy that was not announced is never
read: no node is updated until the deployer writes its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from urllib.parse import quote, unquote

import msgspec

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import Body, annotations_of, labels_of
from gitops_ds.core.values import replace
from gitops_ds.rollouts.state import keys, proofs, target_revisions
from gitops_ds.rollouts.state.attested_records import Digests, digest

# By the label or the annotation: the word before its text, which has no space.
_WORDS = {
    names.OWNER_LABEL: "owner=",
    names.REPOSITORY: "repository=",
    names.PATH: "path=",
    names.COMMIT: "commit=",
    keys.TARGET: "target=",
}
_SHOWN = (names.REPOSITORY, names.PATH, names.COMMIT)
_HALTS_OTHERS = "scope=cluster"
_SUFFIX = ".rollout"


class DaemonSetWrite(msgspec.Struct, frozen=True):
    """What the deployer states on the DaemonSet with a UID (`stated_on`). Until that is written,
    the statements of `before` count further.
    """

    uid: str
    stated: Mapping[str, str]
    before: Mapping[str, str] = {}

    @property
    def key(self) -> str:
        """The key of its announcement."""
        return key_of(self.uid)

    def announcement(self, known: Digests) -> frozenset[str]:
        """The announcement from now on."""
        before = _announcement(self.before) if self.before else frozenset()
        return _announcement(self.stated) | (known.get(self.key, frozenset()) & before)


def key_of(uid: str) -> str:
    """The key of the announcement of a DaemonSet."""
    return f"{uid}{_SUFFIX}"


def stated_on(body: Body, template: str) -> Mapping[str, str]:
    """The statements on a DaemonSet. `template` is the identity of that of its target revision: who
    may write ControllerRevisions may replace it by one of the same name.
    """
    owner = str(labels_of(body).get(names.OWNER_LABEL) or "")
    stated = {**annotations_of(body), names.OWNER_LABEL: owner}
    if target := stated.get(keys.TARGET):
        stated[keys.TARGET] = f"{target} {template}"
    return stated


def stated_with(body: Body, own_revisions: Iterable[Revision]) -> Mapping[str, str]:
    """As `stated_on`, with the target among the revisions of the DaemonSet."""
    target = annotations_of(body).get(keys.TARGET)
    named = (revision for revision in own_revisions if target and revision.name == target)
    return stated_on(body, next((proofs.identity(revision.template) for revision in named), ""))


def owners(uid: str, known: Digests) -> Set[str]:
    """The owners of a DaemonSet: two while it gets another one, none if nothing was announced."""
    return _texts(known.get(key_of(uid), frozenset()), names.OWNER_LABEL)


def all_owners(known: Digests) -> Set[str]:
    """The owners of all announced DaemonSets."""
    announced = (one for key, one in known.items() if key.endswith(_SUFFIX))
    return frozenset().union(*(_texts(text, names.OWNER_LABEL) for text in announced))


def as_announced(
    daemonset: DaemonSet, own_revisions: Iterable[Revision], known: Digests
) -> DaemonSet:
    """The DaemonSet with the annotations that count, and the names of those of its rollout that its
    deployer did not announce; of the target also if the revision has another template.
    """
    announced, live = known.get(key_of(daemonset.uid), frozenset()), daemonset.annotations
    if not announced and not live.get(keys.ROLLOUT_POLICY):
        return daemonset
    stated = stated_with(daemonset.raw, own_revisions)
    digests = _digests(stated)
    forged = tuple(name for name, digest in digests.items() if digest not in announced)
    counting = {name: _counting(name, live, announced) for name in _SHOWN}
    if keys.TARGET in forged:
        counting[keys.TARGET] = _counting(keys.TARGET, live, announced)
    if keys.ROLLOUT_POLICY in forged:
        counting[keys.ROLLOUT_POLICY] = _policy_instead(announced)
    annotations = {name: text for name, text in {**live, **counting}.items() if text}
    owner = min(_texts(announced, names.OWNER_LABEL), default="")
    return replace(daemonset, annotations=annotations, unannounced=forged, owner=owner)


def _announcement(stated: Mapping[str, str]) -> frozenset[str]:
    return frozenset((*_digests(stated).values(), *_words(stated)))


def _digests(stated: Mapping[str, str]) -> Mapping[str, str]:
    """The digest of each annotation that a rollout reads, also of an absent one."""
    return {name: digest(f"{name}={stated.get(name) or ''}") for name in keys.READ_BY_ROLLOUTS}


_NO_POLICY = _digests({})[keys.ROLLOUT_POLICY]


def _words(stated: Mapping[str, str]) -> Iterator[str]:
    for name, word in _WORDS.items():
        text = stated.get(name) or ""
        if text := text.partition(" ")[0] if name == keys.TARGET else text:
            yield f"{word}{quote(text)}"
    if _halts_others(stated.get(keys.ROLLOUT_POLICY) or ""):
        yield _HALTS_OTHERS


def _halts_others(policy: str) -> bool:
    try:
        policy_and_pools = target_revisions.policy_in(policy)
    except ValueError:
        return False
    return policy_and_pools is not None and policy_and_pools[0].on_failure.scope == "cluster"


def _texts(announced: Set[str], name: str) -> Set[str]:
    word = _WORDS[name]
    return {unquote(text.removeprefix(word)) for text in announced if text.startswith(word)}


def _counting(name: str, live: Mapping[str, str], announced: Set[str]) -> str:
    """The text of an annotation that counts, empty without one; of the commit that in the cluster
    beside an announcement without one, which is of an earlier version.
    """
    texts, text = _texts(announced, name), live.get(name) or ""
    if name == names.COMMIT and announced and not texts:
        return text
    return text if text in texts else min(texts, default="")


def _policy_instead(announced: Set[str]) -> str:
    """The policy in place of one that was not announced: it has the effect on other rollouts that
    the announced one has. Empty for a DaemonSet that was announced without a policy.
    """
    if _NO_POLICY in announced:
        return ""
    scope = {"onFailure": {"scope": "cluster"}} if _HALTS_OTHERS in announced else {}
    return target_revisions.policy_text({"stages": [{"name": "all"}], **scope}, ())
