"""Selects the commit to keep applied: the branch's tip if it is deployable, else the last good one,
else none.

Before the first response of Git, the last applied commit is kept applied, if it is in the local
copy. A new commit, a rejected one and a failed verification are published once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import msgspec

from gitops_ds.core import errors, stated_reasons
from gitops_ds.core.deployer_state import DeployerState, Steering
from gitops_ds.core.events.base import Emit
from gitops_ds.core.events.commits import (
    CommitRejected,
    NewCommit,
    SourceVerified,
    VerificationFailed,
)
from gitops_ds.core.events.requests import CommitHeld
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.redaction import report
from gitops_ds.core.rollouts.cluster_report import ClusterOrder
from gitops_ds.core.sources.signatures import Unverified, Verified
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.cause_finder import CauseFinder
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.deploy.wave_gate import NO_WAVES, WaitingCommit, WaveContext, WaveGate, WaveSource
from gitops_ds.source.git.object_reader import BranchMovement


async def no_verification(tip: CommitId, since: CommitId | None) -> None:
    """For a source whose settings require no signature."""


def prepare_directly(
    prepare: Callable[[SourceTree], Prepared],
) -> Callable[[SourceTree], Awaitable[Prepared]]:
    """For a source with small commits: prepares them in this process."""

    async def prepared(snapshot: SourceTree) -> Prepared:
        return prepare(snapshot)

    return prepared


async def no_verification_of_last_good(commit: CommitId) -> None:
    """As `no_verification`, for the last good commit."""


async def keep_nothing(commits: Collection[CommitId]) -> None:
    """For a source that deletes no commit."""


class RevisionSource(msgspec.Struct, frozen=True):
    """The source of revisions: the current tip, a commit's files, the movement of the branch, and
    the rendered files.

    `verify` returns whether a tip, with the commits since the last good one, has a trusted
    signature; no file of an unverified commit is read or rendered. `verify_kept` verifies only the
    last good commit. None: no signature is required. `follows_rewrites`: a rewritten branch is
    followed without approval. `keep` retains commits that are read again, also after a rewrite.
    `watched`: the tip is known without a request. `branch` returns the name of the followed branch
    or tag, as far as known, for messages; `followed` is the tag, or the range of tags, as text,
    empty for a branch. `waves`: the reports of other clusters. `causes` finds the commits of
    templates.
    """

    tip: Callable[[], Awaitable[CommitId]]
    snapshot: Callable[[CommitId], Awaitable[SourceTree]]
    movement: Callable[[CommitId, CommitId], Awaitable[BranchMovement]]
    prepare: Callable[[SourceTree], Awaitable[Prepared]]
    verify: Callable[[CommitId, CommitId | None], Awaitable[Verified | Unverified | None]] = (
        no_verification
    )
    verify_kept: Callable[[CommitId], Awaitable[Verified | Unverified | None]] = (
        no_verification_of_last_good
    )
    keep: Callable[[Collection[CommitId]], Awaitable[None]] = keep_nothing
    follows_rewrites: bool = True
    watched: bool = False
    branch: Callable[[], str] = str
    followed: str = ""
    waves: WaveSource = NO_WAVES
    causes: CauseFinder = msgspec.field(default_factory=CauseFinder)


class _MovedWords(msgspec.Struct, frozen=True):
    """The message of a tip that is not a descendant of the last one. `followed` is a tag, empty for
    a branch.
    """

    followed: str
    last: str
    tip: str

    @property
    def rewound(self) -> str:
        went, until = "the branch went back", "a newer commit follows"
        if self.followed:
            went, until = f"{self.followed} was moved back", "it is at a newer commit"
        return (
            f"{went} from {self.last} to {self.tip}, an older commit: nothing is applied until "
            f"{until}, {self._approval}"
        )

    @property
    def rewritten(self) -> str:
        went, until = "the branch was rewritten", f"the branch descends from {self.last}"
        if self.followed:
            went, until = f"{self.followed} was moved", f"it is at a descendant of {self.last}"
        return (
            f"{went} from {self.last} to {self.tip}, which is not a descendant: nothing of it is "
            f"applied until {until}, {self._approval} (repository.verify.forcePush: follow)"
        )

    @property
    def _approval(self) -> str:
        return f"or `gitops-ds apply --revision {self.tip}` approves it"


class SelectedRevision(msgspec.Struct, frozen=True):
    """The revision to apply for a tip of the branch; `prepared` is None before the first good
    commit.

    A tip that is not `trusted` is verified again by the next reconciliation: its signer may have
    been added. `held` is the reason of a hold, `blocked` the error that only an approval resolves,
    `rejected` the first blocking finding, `waiting` the clusters that the tip waits for. `kept`:
    Git has not responded yet; `tip` is the last applied commit, regardless of the branch's tip.
    `lost`: the last good commit was to be kept applied, and neither the local copy nor the server
    has it.
    """

    tip: CommitId
    prepared: Prepared | None = None
    snapshot: SourceTree | None = None
    trusted: bool = True
    held: str = ""
    blocked: errors.SourceError | None = None
    rejected: str = ""
    kept: bool = False
    waiting: WaitingCommit | None = None
    lost: bool = False

    def may_change(self, *, answered: bool) -> bool:
        """Whether the same tip may lead to another revision. `answered`: Git has just returned the
        tip.
        """
        return not self.trusted or self.blocked is not None or (self.kept and answered)


Select = Callable[[CommitId, DeployerState, Steering], Awaitable[SelectedRevision]]


class RevisionSelector:
    """Selects the revisions of one repository, and publishes them; `clock` returns seconds since
    1970.
    """

    def __init__(self, source: RevisionSource, emit: Emit, clock: Callable[[], float]) -> None:
        self._source, self._emit, self._clock = source, emit, clock
        context = WaveContext(source.waves, source.movement, self._prepared)
        self._gate = WaveGate(context, emit, clock)
        self.forget()

    def forget(self) -> None:
        """Allows repeated events: another replica may have published in between."""
        self._published: CommitId | None = None
        self._unverified: set[str] = set()
        self._gate.forget()

    async def select(
        self, tip: CommitId, state: DeployerState, steering: Steering
    ) -> SelectedRevision:
        """The tip if it is deployable and waits for no other cluster; else the newest commit that
        may continue, or the last good one, so that its drift is still corrected; else nothing.
        """
        if hold := hold_reason(tip, steering):
            self._emit(CommitHeld(self._clock(), tip, hold))
            return await self._last_good(SelectedRevision(tip, held=hold), state)
        if not await self._verify(tip, state):
            return await self._last_good(SelectedRevision(tip, trusted=False), state)
        snapshot = await self._source.snapshot(tip)
        await self._source.keep([*filter(None, (tip, state.last_attempted, state.last_good))])
        movement = await self._movement(state.last_attempted, tip)
        if blocked := self._blocked(tip, movement, state):
            return await self._last_good(SelectedRevision(tip, blocked=blocked), state)
        prepared = await self._source.prepare(snapshot)
        self._report(snapshot, movement, state, prepared)
        if prepared.deployable:
            order = prepared.bundle.cluster.order
            waiting = await self._waiting(tip, order, state, steering)
            if waiting is None:
                return SelectedRevision(tip, prepared, snapshot)
            return await self._instead(SelectedRevision(tip, waiting=waiting), state)
        blocking = next((finding for finding in prepared.findings if finding.refused), None)
        return await self._last_good(
            SelectedRevision(tip, rejected=report.line_of(blocking) if blocking else ""), state
        )

    async def _waiting(
        self, tip: CommitId, order: ClusterOrder, state: DeployerState, steering: Steering
    ) -> WaitingCommit | None:
        return None if steering.releases(tip) else await self._gate.waiting(tip, order, state)

    async def recheck(
        self, selected: SelectedRevision, state: DeployerState, steering: Steering
    ) -> SelectedRevision | None:
        """The same revision with the present reason of its wait; None if another one must be
        selected. Raises SourceError.
        """
        before = selected.waiting
        if before is None or hold_reason(selected.tip, steering) != selected.held:
            return None
        now = await self._waiting(selected.tip, before.order, state, steering)
        same = now is not None and now.instead == before.instead
        return replace(selected, waiting=now) if same else None

    async def _instead(self, choice: SelectedRevision, state: DeployerState) -> SelectedRevision:
        """The newest commit that may continue, if it is still trusted and deployable."""
        instead = choice.waiting.instead if choice.waiting else None
        if instead is not None and instead != state.last_good:
            earlier = await self._kept(instead, choice)
            if earlier.prepared is not None:
                return earlier
        return await self._last_good(choice, state)

    async def keep(
        self, last: CommitId, state: DeployerState, steering: Steering
    ) -> SelectedRevision:
        """The last applied commit, while the branch's tip is unknown; the last good one if it is on
        hold or not deployable.

        Raises SourceUnreachable for a commit that is not in the local copy.
        """
        hold = hold_reason(last, steering)
        unknown = SelectedRevision(last, held=hold, kept=True)
        try:
            choice = unknown if hold else await self._kept(last, unknown)
            return (
                choice
                if choice.prepared or state.last_good == last
                else await self._last_good(choice, state)
            )
        except errors.SourceError as error:
            lost = (
                f"commit {short(last)}, which was applied last, is not in the local copy of the "
                "repository"
            )
            raise errors.SourceUnreachable(
                f"{lost}, so no drift is corrected until Git responds: {error}"
            ) from error

    async def _last_good(self, choice: SelectedRevision, state: DeployerState) -> SelectedRevision:
        if state.last_good is None or (choice.held and state.last_good == choice.tip):
            return choice
        try:
            return await self._kept(state.last_good, choice)
        except errors.RevisionUnknown:  # removed by a rewrite, and the local copy is a new one
            return replace(choice, lost=True)

    async def _kept(self, commit: CommitId, choice: SelectedRevision) -> SelectedRevision:
        """The choice with an applied commit, if it is still trusted and deployable."""
        verification = await self._source.verify_kept(commit)
        # the stored state names it as good, and every writer of ConfigMaps can change that state
        if isinstance(verification, Unverified):
            self._report_unverified(verification)
            return replace(choice, trusted=False)
        good = await self._source.snapshot(commit)
        prepared = await self._source.prepare(good)
        return replace(choice, prepared=prepared, snapshot=good) if prepared.deployable else choice

    async def _verify(self, tip: CommitId, state: DeployerState) -> bool:
        """Whether the tip is trusted. A new verified tip is published once, a failure once for each
        reason.
        """
        verification = await self._source.verify(tip, state.last_good)
        if isinstance(verification, Unverified):
            self._report_unverified(verification)
            return False
        self._unverified = set()
        if verification is not None and tip not in (state.last_attempted, self._published):
            self._emit(
                SourceVerified(
                    self._clock(), tip, verification.signer, verification.key, verification.checked
                )
            )
        return True

    def _report_unverified(self, failure: Unverified) -> None:
        if failure.message not in self._unverified:
            self._emit(VerificationFailed(self._clock(), failure.commit, failure.message))
        self._unverified |= {failure.message}

    def _report(
        self,
        snapshot: SourceTree,
        movement: BranchMovement,
        state: DeployerState,
        prepared: Prepared,
    ) -> None:
        """Publishes a commit once, also when the reconciliation failed later and is repeated."""
        info = snapshot.commit
        if info is None or info.id == self._published:
            return
        self._published = info.id
        if info.id != state.last_attempted:
            self._emit(
                NewCommit(
                    self._clock(),
                    info.id,
                    info.subject,
                    info.author,
                    movement is BranchMovement.REWRITTEN,
                )
            )
        if not prepared.deployable:
            refused = tuple(finding for finding in prepared.findings if finding.refused)
            self._emit(CommitRejected(self._clock(), info.id, refused))

    def _blocked(
        self, tip: CommitId, movement: BranchMovement, state: DeployerState
    ) -> errors.HistoryRewound | None:
        words = _MovedWords(self._source.followed, short(state.last_attempted), short(tip))
        if movement is BranchMovement.REWOUND:
            return errors.HistoryRewound(words.rewound)
        if movement is BranchMovement.REWRITTEN and not self._source.follows_rewrites:
            # A signature contains neither branch nor repository: a signed commit may be from
            # another one.
            return errors.HistoryRewound(words.rewritten)
        return None

    async def _prepared(self, commit: CommitId) -> Prepared:
        return await self._source.prepare(await self._source.snapshot(commit))

    async def _movement(self, last: CommitId | None, tip: CommitId) -> BranchMovement:
        if last is None or last == tip:
            return BranchMovement.FORWARD
        try:
            return await self._source.movement(last, tip)
        except errors.RevisionUnknown:  # the old line was removed from the server
            return BranchMovement.REWRITTEN


def hold_reason(tip: CommitId, steering: Steering) -> str:
    """The reason of a hold on the commit; empty without one."""
    if not steering.holds(tip):
        return ""
    return stated_reasons.after("requested with `gitops-ds hold`", steering.hold_reason(tip))
