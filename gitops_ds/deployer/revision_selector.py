"""Which commit is kept applied: the branch's tip, if it may be; else the last good one; else none.

Before the first answer of Git the commit that was applied last is kept applied, as far as the local
copy has it.

What is met on the way is told once: a new commit, one that is not well formed, one whose signer
nobody knows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from gitops_ds import errors
from gitops_ds.git.object_reader import BranchMovement
from gitops_ds.model.control_requests import Steering
from gitops_ds.model.deployment import DeployerState
from gitops_ds.model.events.base import Emit
from gitops_ds.model.events.deployer import (
    CommitRejected,
    NewCommit,
    SourceVerified,
    VerificationFailed,
)
from gitops_ds.model.events.requests import CommitHeld
from gitops_ds.model.objects import CommitId
from gitops_ds.model.signatures import Unverified, Verified
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.pipeline.prepare import Prepared
from gitops_ds.redaction import report


async def no_verification(tip: CommitId, since: CommitId | None) -> None:
    """For a source whose signatures nobody asked for."""


def prepare_directly(
    prepare: Callable[[Snapshot], Prepared],
) -> Callable[[Snapshot], Awaitable[Prepared]]:
    """For a source whose commits are known to be small: they are prepared here and now."""

    async def prepared(snapshot: Snapshot) -> Prepared:
        return prepare(snapshot)

    return prepared


async def no_verification_of_last_good(commit: CommitId) -> None:
    """The same, for the last good commit."""


@dataclass(frozen=True, slots=True)
class RevisionSource:
    """Git, as the loop needs it: the tip now, a commit's files, how the branch moved, and what the
    files mean.

    `verify` tells whether a tip, with what came since the last good commit, is signed by whom we
    trust; nothing of one that isn't is read, let alone rendered; `verify_kept` does so for the last
    good commit alone. None: no signature is asked for. `follows_rewrites`: a branch that does not
    lead on from the last commit is followed without consent. `watched`: the tip is known without
    asking anybody. `branch`: what is followed, for people.
    """

    tip: Callable[[], Awaitable[CommitId]]
    snapshot: Callable[[CommitId], Awaitable[Snapshot]]
    movement: Callable[[CommitId, CommitId], Awaitable[BranchMovement]]
    prepare: Callable[[Snapshot], Awaitable[Prepared]]
    verify: Callable[[CommitId, CommitId | None], Awaitable[Verified | Unverified | None]] = (
        no_verification
    )
    verify_kept: Callable[[CommitId], Awaitable[Verified | Unverified | None]] = (
        no_verification_of_last_good
    )
    follows_rewrites: bool = True
    watched: bool = False
    branch: str = ""


@dataclass(frozen=True, slots=True)
class SelectedRevision:
    """What a tip of the branch means for the cluster: what is applied, or None where no commit was
    good yet.

    One that is not `trusted` is looked at again in the next pass: a person may have added its
    signer. `held` is why the tip is not to be applied, where somebody said so, `blocked` why only a
    person can let it be applied, `rejected` its first finding. `kept`: Git has not answered yet;
    `tip` is the commit that was applied last, whatever the branch's tip is.
    """

    tip: CommitId
    prepared: Prepared | None = None
    snapshot: Snapshot | None = None
    trusted: bool = True
    held: str = ""
    blocked: errors.SourceError | None = None
    rejected: str = ""
    kept: bool = False

    def may_change(self, *, answered: bool) -> bool:
        """Whether selecting again for the same tip may select another revision. `answered`: Git has
        just named the tip.
        """
        return not self.trusted or self.blocked is not None or (self.kept and answered)


Select = Callable[[CommitId, DeployerState, str], Awaitable[SelectedRevision]]


class RevisionSelector:
    """The choices of one repository, and what was told of them; `clock` gives seconds since 1970."""

    def __init__(self, source: RevisionSource, emit: Emit, clock: Callable[[], float]) -> None:
        self._source, self._emit, self._clock = source, emit, clock
        self.forget()

    def forget(self) -> None:
        """What was told may be told again: somebody else may have told other things since."""
        self._told: CommitId | None = None
        self._distrust: set[str] = set()

    async def select(self, tip: CommitId, known: DeployerState, held: str) -> SelectedRevision:
        """The tip, if it may be applied; else the last good commit, so that drift is still looked
        after; else nothing.
        """
        if held:
            self._emit(CommitHeld(self._clock(), tip, held))
            return await self._last_good(SelectedRevision(tip, held=held), known)
        if not await self._trusts(tip, known):
            return await self._last_good(SelectedRevision(tip, trusted=False), known)
        snapshot = await self._source.snapshot(tip)
        movement = await self._movement(known.last_attempted, tip)
        if blocked := self._unwanted(tip, movement, known):
            return await self._last_good(SelectedRevision(tip, blocked=blocked), known)
        prepared = await self._source.prepare(snapshot)
        self._tell(snapshot, movement, known, prepared)
        if prepared.deployable:
            return SelectedRevision(tip, prepared, snapshot)
        found = next((finding for finding in prepared.findings if finding.refused), None)
        return await self._last_good(
            SelectedRevision(tip, rejected=report.line_of(found) if found else ""), known
        )

    async def keep(self, last: CommitId, known: DeployerState, held: str) -> SelectedRevision:
        """The commit that was applied last, while the tip of the branch is not known; the last good
        one where that may not be.

        Raises SourceUnreachable where it is not in the local copy.
        """
        unknown = SelectedRevision(last, held=held, kept=True)
        try:
            choice = unknown if held else await self._kept(last, unknown)
            return (
                choice
                if choice.prepared or known.last_good == last
                else await self._last_good(choice, known)
            )
        except errors.SourceError as error:
            lost = (
                f"commit {last[:12]}, which was applied last, is not in the local copy of the "
                "repository"
            )
            raise errors.SourceUnreachable(
                f"{lost}, so nothing is corrected until Git answers: {error}"
            ) from error

    async def _last_good(self, choice: SelectedRevision, known: DeployerState) -> SelectedRevision:
        if known.last_good is None or (choice.held and known.last_good == choice.tip):
            return choice
        return await self._kept(known.last_good, choice)

    async def _kept(self, commit: CommitId, choice: SelectedRevision) -> SelectedRevision:
        """The choice with a commit that was applied before, if it may still be read and applied."""
        found = await self._source.verify_kept(commit)
        # the state says that it was good, and whoever may write ConfigMaps can say that
        if isinstance(found, Unverified):
            self._distrusts(found)
            return replace(choice, trusted=False)
        good = await self._source.snapshot(commit)
        prepared = await self._source.prepare(good)
        return replace(choice, prepared=prepared, snapshot=good) if prepared.deployable else choice

    async def _trusts(self, tip: CommitId, known: DeployerState) -> bool:
        """Whether the tip may be read. Told once: a good one when it is new, the other for each
        reason.
        """
        found = await self._source.verify(tip, known.last_good)
        if isinstance(found, Unverified):
            self._distrusts(found)
            return False
        self._distrust = set()
        if found is not None and tip not in (known.last_attempted, self._told):
            self._emit(SourceVerified(self._clock(), tip, found.signer, found.key, found.checked))
        return True

    def _distrusts(self, found: Unverified) -> None:
        if found.message not in self._distrust:
            self._emit(VerificationFailed(self._clock(), found.commit, found.message))
        self._distrust |= {found.message}

    def _tell(
        self, snapshot: Snapshot, movement: BranchMovement, known: DeployerState, prepared: Prepared
    ) -> None:
        """Tells a commit once, also when the pass that met it failed later and is taken again."""
        info = snapshot.commit
        if info is None or info.id == self._told:
            return
        self._told = info.id
        if info.id != known.last_attempted:
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

    def _unwanted(
        self, tip: CommitId, movement: BranchMovement, known: DeployerState
    ) -> errors.HistoryRewound | None:
        last = (known.last_attempted or "")[:12]
        consent = f"or somebody agrees by `gitops-ds apply --revision {tip[:12]}`"
        if movement is BranchMovement.REWOUND:
            told = f"the branch went back from {last} to {tip[:12]}, an older commit"
            return errors.HistoryRewound(
                f"{told}: nothing is applied until a newer one comes, {consent}"
            )
        if movement is BranchMovement.REWRITTEN and not self._source.follows_rewrites:
            # No signature names a branch or a repository: that a commit is signed does not say that
            # it was meant for here.
            told = f"the branch was rewritten from {last} to {tip[:12]}, which does not lead on from it"
            advice = (
                f"until the branch leads on from {last}, {consent} (repository.verify.forcePush: "
                "follow)"
            )
            return errors.HistoryRewound(f"{told}: nothing of it is applied {advice}")
        return None

    async def _movement(self, last: CommitId | None, tip: CommitId) -> BranchMovement:
        if last is None or last == tip:
            return BranchMovement.FORWARD
        try:
            return await self._source.movement(last, tip)
        except errors.RevisionUnknown:  # the old line was removed from the server
            return BranchMovement.REWRITTEN


def held(tip: CommitId, known: DeployerState, steering: Steering) -> str:
    """Why the commit is not to be applied; nothing where it may be."""
    if by_itself := next((held.reason for held in known.held if held.commit == tip), ""):
        return by_itself
    return "somebody asked for that" if steering.holds(tip) else ""
