"""Own writes replace the objects of the watch until it has shown them."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitops_ds.daemonset.memory import LAPSES_AFTER, PendingWrites

UIDS = ("a", "b")
VERSIONS = st.integers(1, 6)


class Model:
    """The rules, without an order of the replies."""

    def __init__(self) -> None:
        self.passed = 0
        self.replies: dict[str, tuple[int, float]] = {}
        self.earlier: dict[str, tuple[int, float]] = {}

    def wrote(self, uid: str, version: int, now: float) -> None:
        if version > self.passed and self.replies.get(uid, (0, 0.0))[0] <= version:
            self.replies[uid] = version, now

    def advance(self, version: int) -> None:
        self.passed = max(self.passed, version)
        self.replies = {uid: one for uid, one in self.replies.items() if one[0] > self.passed}

    def answered(self, version: int) -> bool:
        lost = {
            uid
            for uid, one in self.earlier.items()
            if one[0] > version and self.replies.get(uid) == one
        }
        self.replies = {uid: one for uid, one in self.replies.items() if uid not in lost}
        self.earlier = {}
        return bool(lost)

    def lapse(self, now: float) -> None:
        self.replies = {
            uid: one for uid, one in self.replies.items() if 0 <= now - one[1] < LAPSES_AFTER
        }


wrote = st.tuples(st.just("wrote"), st.sampled_from(UIDS), VERSIONS)
steps = st.lists(
    st.one_of(
        wrote,
        wrote,
        wrote,
        st.tuples(st.just("advance"), VERSIONS),
        st.tuples(st.just("asks")),
        st.tuples(st.just("answered"), VERSIONS),
        st.tuples(st.just("reset"), VERSIONS),
        st.tuples(st.just("lapse")),
    ),
    min_size=3,
    max_size=20,
)


@settings(max_examples=300)  # a millisecond each
@example([("wrote", "a", 1), ("wrote", "a", 2), ("advance", 1)])
@given(steps)
def test_a_reply_counts_until_its_version_is_shown_lost_or_too_old(
    done: list[tuple[str, *tuple[str | int, ...]]],
) -> None:
    writes, model = PendingWrites[tuple[str, int]](), Model()
    now = 0.0
    for step in done:
        now += LAPSES_AFTER / 4
        match step:
            case ("wrote", str(uid), int(version)):
                writes.wrote(uid, (uid, version), str(version), now)
                model.wrote(uid, version, now)
            case ("advance", int(version)):
                writes.advance(str(version))
                model.advance(version)
            case ("asks",):
                writes.asks()
                model.earlier = dict(model.replies)
            case ("answered", int(version)):
                assert writes.answered(str(version)) == model.answered(version)
            case ("reset", int(version)):
                writes.reset(str(version))
                model.answered(version)
                model.passed = 0
                model.advance(version)
            case ("lapse",):
                writes.lapse(now)
                model.lapse(now)
        expected = {uid: (uid, version) for uid, (version, _) in model.replies.items()}
        assert dict(writes) == expected
        for uid in UIDS:
            assert writes.get(uid) == expected.get(uid)
            for version in range(7):
                shown = writes.at(uid, str(version))
                assert shown == ((uid, version) if expected.get(uid) == (uid, version) else None)
