"""Each record as one line for people, and as one JSON object for programs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops_ds.apimachinery import timestamps
from gitops_ds.model import guards
from gitops_ds.model.change import DriftPolicy
from gitops_ds.model.decision import Action, Health, HealthState
from gitops_ds.model.events import agents, base, deployer, leader_election, notifications, requests
from gitops_ds.model.events.base import Record
from gitops_ds.model.events.deployer import SourceChanged
from gitops_ds.model.objects import Key, short, template_of
from gitops_ds.model.plural import counted
from gitops_ds.model.source_status import EFFECTS
from gitops_ds.redaction import report, texts
from gitops_ds.telemetry import kube_events


def line(told: Record) -> str | None:
    """The record in words, without what looks like a key or a password in them; None for what only
    programs want to know.
    """
    said = _said(told)
    return None if said is None else texts.words(said)


def _said(told: Record) -> str | None:
    if isinstance(told, requests.Asked):
        return _steered(told)
    match told:
        case base.WatchFailed(resource=resource, error=error, retry_in=retry_in):
            return (
                f"the watch of {resource.plural} failed: {error}; tried again in {retry_in:.0f} s"
            )
        case base.ActionFailed(daemonset=daemonset, action=action, error=error):
            return f"{daemonset}: {_action(action)} failed: {error}"
        case base.StatusFailed(daemonset=daemonset, error=error):
            return f"{daemonset}: its status was not taken: {error}"
        case base.Performed(daemonset=daemonset, action=action, object=target):
            return f"{daemonset}: {_action(action, target)}: {action.why}"
        case base.TaskRestarted(task=task, message=message, retry_in=retry_in):
            return f"internal error in the task {task!r}: {message}; restarted in {retry_in:.0f} s"
        case base.JournalFailed(message=message):
            return f"the journal can't be written, and work goes on without: {message}"
        case base.JournalMended(missing=missing):
            return (
                f"the journal is written again, in a new file; {counted(missing, 'turn')} missing"
            )
        case base.Differed(daemonset=daemonset, ours=ours, theirs=theirs):
            return (
                f"warning: {daemonset}: the built-in controller did otherwise: ours wants {ours}; "
                f"theirs {theirs}"
            )
        case leader_election.Leading():
            return _leading(told)
        case SourceChanged(status=status, before=before) if (
            told.recovered or status.agents_suspended
        ):  # other trouble has lines of its own
            return (
                f"repository {status.repository}: {status.condition} (was {before}): "
                f"{status.message}"
            )
        case notifications.NotTold(receiver=receiver, message=message, lost=lost):
            return f"not told: {receiver}: {message}" + (
                f"; {counted(lost, 'notification')} lost" if lost else ""
            )
        case agents.Standing(daemonset=daemonset):
            said = kube_events.stands(told, kube_events.InvolvedObject("", "", "", ""))
            return (
                f"{'warning: ' if said.warning else ''}{daemonset}: {said.reason} {said.message}"
                if said
                else None
            )
        case _:
            return _deployed(told)


def _action(action: Action, target: Key | None = None) -> str:
    """`CreatePod logging/agent-x7f2k on node-1`; a pod that was not created has no name."""
    target = target or getattr(action, "key", None)
    node = str(getattr(action, "node", ""))
    name = f" {target.namespace}/{target.name}" if target else ""
    return f"{type(action).__name__}{name}{f' on {node}' if node else ''}"


def _leading(told: leader_election.Leading) -> str | None:
    lease = f"{told.namespace}/{told.lease}"
    match told:
        case leader_election.StandsBy(me=me):
            return f"stands for election by lease {lease} as {me}"
        case leader_election.LeaderElected():
            return f"leads by lease {lease}"
        case leader_election.LeaderLost(why=why):
            return f"leads no more, and writes nothing: lease {lease}: {why}"
        case leader_election.LeaderSeen(holder=holder):
            return f"stands by: {holder} leads"
        case leader_election.LeaseFailed(message=message):
            return f"lease {lease}: {message}"
        case _:
            return None


def _steered(told: requests.Asked) -> str | None:
    match told:
        case requests.HookHeard(result=requests.HookResult.ACCEPTED, forge=forge):
            return f"a webhook ({forge}) told of a push: looking now"
        case requests.PassedOn():
            return "another replica was told of a push: looking now"
        case requests.CommitHeld(commit=commit, reason=reason):
            return f"commit {commit[:12]} is held ({reason}): the last good one stays"
        case requests.Suspended(commit=commit, changes=changes):
            return (
                f"suspended: {counted(changes, 'change')} of commit {(commit or '')[:12]} not "
                "applied"
            )
        case requests.Resumed():
            return "no longer suspended"
        case requests.Handled(request=request, outcome=outcome):
            return f"the pass that was requested at {request} is over: {outcome}"
        case _:
            return None


def _deployed(told: Record) -> str | None:
    """The facts of a deployer, from the commit to the cluster."""
    match told:
        case deployer.NewCommit(commit=commit, subject=subject) if template_of(commit):
            return f"templates in the cluster: {subject}"
        case deployer.NewCommit(commit=commit, subject=subject, author=author, rewritten=rewritten):
            note = " (the branch was rewritten by a force-push)" if rewritten else ""
            return f"new commit {short(commit)} {subject!r} by {author}{note}"
        case deployer.CommitRejected(commit=commit, findings=findings):
            more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
            what = template_of(commit or "") or f"commit {short(commit)}"
            return f"{what} is not applied: {report.line_of(findings[0])}{more}"
        case deployer.SourceVerified(commit=commit, signer=signer, key=key, checked=checked):
            return f"commit {commit[:12]} is signed by {signer} with {key}" + (
                f"; {checked} signatures checked" if checked > 1 else ""
            )
        case deployer.VerificationFailed(message=message):
            return f"{message}; the last good commit stays"
        case deployer.Applied(change=change, warnings=warnings):
            text = f"{past(change.operation.value)} {change.key}{_revision(change)}"
            return text + "".join(f"; warning: {warning}" for warning in warnings)
        case deployer.DriftFact():
            return _drift(told)
        case deployer.NotApplied(refusal=refusal) | deployer.Withheld(refusal=refusal):
            return f"not applied: {refusal.message}"
        case deployer.PassFailed(message=message, retry_in=retry_in):
            return message + (
                f"; tried again in {retry_in:.0f} s"
                if retry_in is not None
                else "; waiting for a change"
            )
        case deployer.PassEnded(commit=commit, writes=writes, failed=failed) if writes or failed:
            what = (
                "the state of the templates"
                if template_of(commit or "")
                else f"commit {short(commit)}"
            )
            if left := failed or told.suspended:
                return (
                    f"{what} is applied in part: {writes} written, {len(left)} not: "
                    f"{left[0].message}"
                )
            return f"{what} is applied: {writes} written"
        case _:
            return None


def _drift(told: deployer.DriftFact) -> str:
    match told:
        case deployer.DriftCorrected(object=key):
            return f"drift: {key} is as Git says again"
        case deployer.DriftHeld(object=key, until=until):
            return f"drift: {key} is held until {timestamps.text(until)}, then it is corrected"
        case deployer.DriftContested(object=key, words=words):
            return (
                f"drift: {key} was {words}; that comes back after each correction, so the next "
                "one waits"
            )
        case _:
            choice = told.drifted.choice
            left = (
                "" if choice is DriftPolicy.CORRECT else f"; left so, for drift is set to {choice}"
            )
            return f"drift: {told.object} was {told.words}{left}"


LEVELS = ("debug", "info", "warning", "error")
_ERRORS = (
    deployer.VerificationFailed,
    deployer.CommitRejected,
    agents.RolloutFailed,
    base.TaskRestarted,
)
_WARNINGS = (
    *(
        deployer.PassFailed,
        deployer.NotApplied,
        deployer.DriftDetected,
        deployer.DriftContested,
    ),
    *(base.WatchFailed, base.ActionFailed, base.StatusFailed, base.JournalFailed, base.Differed),
    *(
        notifications.NotTold,
        leader_election.LeaseFailed,
        leader_election.LeaderLost,
        agents.CoverageLost,
    ),
    *(requests.CommitHeld, requests.Suspended),
)
_GOOD = (
    *(
        deployer.Applied,
        deployer.PassEnded,
        deployer.DriftCorrected,
        base.JournalMended,
        agents.RolloutCompleted,
    ),
    *(requests.Resumed, deployer.SourceVerified),
)


def level(told: Record) -> str:
    """The severity of a record: error needs a person, warning may, info is for people, debug for
    programs only.
    """
    match told:
        case deployer.PassFailed(retry_in=None):
            return "error"
        case deployer.PassEnded(failed=failed) if any(
            guards.of(refusal.guard).stuck for refusal in failed
        ):
            return "warning"
        case agents.HealthChanged(before=None, health=Health(state=HealthState.HEALTHY)):
            return "debug"  # a first look at an agent that is well is no news
        case deployer.Withheld(refusal=refusal):
            return "warning" if guards.of(refusal.guard).stuck else "info"
        case SourceChanged(status=status):
            return EFFECTS[status.condition].level
        case agents.HealthChanged(health=health):
            return _OF_HEALTH.get(health.state, "info")
        case _ if isinstance(told, _ERRORS):
            return "error"
        case _ if isinstance(told, _WARNINGS):
            return "warning"
        case _:
            return "info" if line(told) else "debug"


_OF_HEALTH = {HealthState.DEGRADED: "warning", HealthState.MISSING: "warning"}
_TONES = {"error": "bad", "warning": "warn"}


def tone(told: Record) -> str:
    """The colour of a record on the page, by its level: bad, warn, good or plain."""
    if isinstance(told, SourceChanged):
        return EFFECTS[told.status.condition].tone
    return _TONES.get(level(told)) or ("good" if isinstance(told, _GOOD) else "plain")


def matters(told: Record, least: str) -> bool:
    """Whether a log of that level has the fact."""
    return LEVELS.index(level(told)) >= LEVELS.index(least)


def dated(told: Record) -> str:
    """The words of a record after its time (UTC) and level, as a log has them; empty where there
    are none.
    """
    words = line(told)
    return f"{timestamps.text(told.at)} {level(told):<7} {words}" if words else ""


def past(operation: str) -> str:
    """`create` as `created`."""
    return operation + ("d" if operation.endswith("e") else "ed")


def _revision(change: Any) -> str:
    rollout = change.rollout
    if rollout is None or not rollout.rolls:
        return ""
    return f" (revision {rollout.becomes}" + (
        f", as {rollout.known_as} was)" if rollout.known_as else ")"
    )


_PLAIN = (
    *("commit", "writes", "retry_in"),
    *("since", "what", "ours", "theirs", "differences"),
    *("created", "deleted", "elsewhere", "replaced", "at_risk"),
)


def _plain(value: Any) -> Any:
    """Of counters their sum, of a text what may be told."""
    if isinstance(value, Mapping):
        return sum(value.values())
    return texts.words(value) if type(value) is str else value


def as_json(told: Record) -> dict[str, Any] | None:
    """The record's kind, time and words, with commit and object where it has them; None for a turn
    that wants nothing.
    """
    if isinstance(told, deployer.Took) or (isinstance(told, base.Decided) and not told.wants):
        return None
    found: dict[str, Any] = {"time": told.at, "level": level(told), "kind": type(told).__name__}
    if words := line(told):
        found["message"] = words
    for name in _PLAIN:
        if (value := getattr(told, name, None)) is not None:
            found[name] = _plain(value)
    key: Key | None = getattr(told, "daemonset", None) or getattr(
        getattr(told, "change", None), "key", None
    )
    key = key or (told.object if isinstance(told, deployer.DriftFact) else None)
    if key is not None:
        found["object"] = str(key)
    return {**found, **_of_actions_and_health(told)}


def _of_actions_and_health(told: Record) -> dict[str, Any]:
    """What an action was done to, and where; how an agent is doing, and did before."""
    match told:
        case base.Performed(action=action) | base.ActionFailed(action=action):
            target = (
                told.object if isinstance(told, base.Performed) else getattr(action, "key", None)
            )
            found = {
                "action": type(action).__name__,
                "target": str(target or ""),
                "node": str(getattr(action, "node", "")),
            }
            return {name: texts.words(value) for name, value in found.items() if value}
        case agents.HealthChanged(before=before, health=health):
            since = {} if before is None else {"before": str(before)}
            return {"health": str(health.state), "message": texts.words(health.message), **since}
        case _:
            return {}
