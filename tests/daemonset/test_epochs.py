"""The objects of a cache are of one history of the cluster, or the kinds that may not be are
named, whenever etcd is restored and in any order in which the watches notice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.core.objects import DAEMONSET, NODE, POD, Resource
from gitops_ds.daemonset.cache import WATCHED
from gitops_ds.daemonset.epochs import Epochs
from tests import profiles

LEAP = 1000  # versions between a backup and its use


@dataclass
class Restores:
    """Histories of a cluster. Each kind knows one up to a version, by a watch as the informer's."""

    epochs: Epochs = field(default_factory=lambda: Epochs(WATCHED))
    version: int = LEAP
    compacted: int = 0
    forks: list[int] = field(default_factory=lambda: [0])  # the version where each history began
    backups: list[tuple[int, int]] = field(default_factory=list)
    known: dict[Resource, tuple[int, int]] = field(default_factory=dict)
    watching: dict[Resource, int] = field(default_factory=dict)

    def write(self) -> None:
        self.version += 1

    def backup(self) -> None:
        """And a long time, in which each watch has a bookmark, unless one is still interrupted."""
        if all(history == len(self.forks) - 1 for history in self.watching.values()):
            self.backups.append((len(self.forks) - 1, self.version))
            self.version += LEAP
            for kind in self.watching:
                self.event(kind)

    def restore(self, bumped: bool) -> None:
        """`bumped`: as `etcdutl snapshot restore --bump-revision --mark-compacted`. Not within the
        first lists: they are compared with nothing.
        """
        if self.backups and len(self.known) == len(WATCHED):
            _, version = self.backups.pop()
            self.forks.append(version)
            self.version = self.version + LEAP * 100 if bumped else version
            self.compacted = self.version if bumped else 0
            self.backups.clear()

    def event(self, kind: Resource) -> None:
        """An event, or what follows after the end of a watch."""
        history = len(self.forks) - 1
        if kind not in self.known:
            self._list(kind)
        elif self.watching[kind] == history:
            self.known[kind] = (history, self.version)
            self.epochs.follows(kind, str(self.version))
        elif self.known[kind][1] < self.compacted:
            self.epochs.lost(kind)
            self._list(kind)
        else:
            self.epochs.asks(kind)
            self.epochs.answered(kind, str(self.version))
            if self.version < self.known[kind][1]:
                self._list(kind)
            else:
                self.watching[kind] = history

    def _list(self, kind: Resource) -> None:
        self.epochs.asks(kind)
        self.epochs.lists(kind, str(self.version))
        self.known[kind] = (len(self.forks) - 1, self.version)
        self.watching[kind] = len(self.forks) - 1

    def relist(self) -> None:
        """As the observer lists the kinds of an earlier epoch."""
        for kind in self.epochs.unlisted:
            self._list(kind)

    @property
    def is_mixed(self) -> bool:
        """Whether no history has everything that the kinds know."""
        return not any(
            all(
                history == other or (history < other and version <= min(self.forks[history + 1 :]))
                for history, version in self.known.values()
            )
            for other in range(len(self.forks))
        )


@settings(max_examples=profiles.examples(300))
@given(
    st.lists(
        st.one_of(
            st.sampled_from(WATCHED),
            st.sampled_from(["write", "backup", "restore", "bumped", "relist"]),
        ),
        max_size=60,
    )
)
def test_objects_of_two_histories_have_unlisted_kinds(steps: list[Resource | str]) -> None:
    restores = Restores()
    for step in steps:
        match step:
            case "write":
                restores.write()
            case "backup":
                restores.backup()
            case "restore" | "bumped":
                restores.restore(step == "bumped")
            case "relist":
                restores.relist()
            case Resource():
                restores.event(step)
        if len(restores.known) == len(WATCHED):
            assert restores.epochs.unlisted or not restores.is_mixed
    restores.relist()
    assert not restores.epochs.unlisted


def listed() -> Epochs:
    epochs = Epochs(WATCHED)
    for kind in WATCHED:
        epochs.lists(kind, "100")
    return epochs


def test_a_watch_that_continues_after_an_answer_begins_no_epoch() -> None:
    """Its next events are older than that answer."""
    epochs = listed()
    epochs.answered(POD, "150")
    epochs.follows(POD, "120")
    assert (epochs.number, epochs.unlisted) == (0, ())


def test_one_restore_begins_one_epoch() -> None:
    epochs = listed()
    epochs.lost(POD)
    for kind in WATCHED:
        epochs.asks(kind)
        epochs.lists(kind, "50")
    assert (epochs.number, epochs.unlisted) == (1, ())


def test_a_list_that_was_requested_before_does_not_count() -> None:
    epochs = listed()
    epochs.asks(DAEMONSET)
    epochs.lost(POD)
    epochs.lists(DAEMONSET, "100")
    assert DAEMONSET in epochs.unlisted
    assert NODE in epochs.unlisted


def test_an_expired_first_list_begins_no_epoch() -> None:
    epochs = Epochs(WATCHED)
    epochs.lost(POD)
    assert epochs.number == 0


def test_a_version_that_goes_back_begins_an_epoch() -> None:
    """As after a reconnection to an API server of a restored member, or one that lags."""
    epochs = listed()
    epochs.follows(POD, "90")
    assert epochs.number == 1
    assert set(epochs.unlisted) == set(WATCHED)
    epochs = listed()
    epochs.answered(NODE, "99")
    assert epochs.number == 1
