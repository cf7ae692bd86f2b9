"""The examples in the `--help` of each command, as pairs of a purpose and a command line; a test
parses them.
"""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "init": (("A repository in a new directory", "gitops-ds init fleet"),),
    "adopt": (
        (
            "A repository of the DaemonSets of two namespaces",
            "gitops-ds adopt fleet -n logging -n tracing",
        ),
    ),
    "check": (
        ("The repository around the current directory", "gitops-ds check"),
        ("The effect of a pull request", "gitops-ds check --base origin/main"),
        ("Safe fixes, applied to the files", "gitops-ds check --fix"),
        ("The page of a rule", "gitops-ds check --explain DS902"),
    ),
    "comment": (
        ("In a job of a pull request", "gitops-ds comment --report report.json"),
        ("The requests, without sending them", "gitops-ds comment --report report.json --dry-run"),
    ),
    "snapshot": (
        (
            "For checks without access to the cluster",
            "gitops-ds snapshot --context eu-1 > eu-1.json",
        ),
    ),
    "render": (
        (
            "The manifests of one agent on one cluster",
            "gitops-ds render --agent node-exporter --cluster eu-1",
        ),
        ("With Secrets, for a pipe", "gitops-ds render --show-secrets"),
    ),
    "explain": (
        (
            "The file and line that set a field",
            "gitops-ds explain node-exporter spec.updateStrategy.rollingUpdate.maxUnavailable",
        ),
    ),
    "plan": (
        ("Changes of the work tree", "gitops-ds plan"),
        (
            "Changes of a commit, without a cluster",
            "gitops-ds plan --revision HEAD~1 --simulate 20",
        ),
        ("Exit code 1 for changes", "gitops-ds plan --exit-code"),
    ),
    "diff": (
        ("Live objects against the work tree", "gitops-ds diff"),
        ("Of a commit, with secret values", "gitops-ds diff --revision HEAD~1 --show-secrets"),
    ),
    "apply": (
        (
            "The last commit, until every rollout is complete",
            "gitops-ds apply --wait --timeout 10m",
        ),
        ("The plan only", "gitops-ds apply --dry-run"),
    ),
    "run": (
        ("The service of a repository", "gitops-ds run -C https://git.example.com/fleet"),
        ("The settings of a file", "gitops-ds run --settings settings.yaml"),
    ),
    "get": (
        ("All DaemonSets, with revision and sync", "gitops-ds get -A -o wide"),
        ("One DaemonSet, until Ctrl-C", "gitops-ds get ds/node-exporter -n node-agents -w"),
        ("By labels, sorted", "gitops-ds get -l tier=node --sort-by .available"),
        ("One field", "gitops-ds get ds/node-exporter -o jsonpath='{.health.state}'"),
        ("All clusters of the repository", "gitops-ds get --all-clusters"),
    ),
    "status": (
        ("Health, and nodes with a problem", "gitops-ds status ds/node-exporter"),
        ("During a rollout", "gitops-ds status ds/node-exporter -w"),
        ("Every node", "gitops-ds status ds/node-exporter --nodes"),
    ),
    "sources": (("With the last message", "gitops-ds sources -o wide"),),
    "events": (
        ("Of one DaemonSet, until Ctrl-C", "gitops-ds events ds/node-exporter -w"),
        ("Drift only", "gitops-ds events --field-selector reason=DriftDetected"),
    ),
    "wait": (
        ("For the pushed commit", "gitops-ds wait ds/node-exporter --commit HEAD --timeout 5m"),
    ),
    "trace": (
        ("The author of the pods of a node", "gitops-ds trace node/node-1"),
        ("The nodes that run a commit", "gitops-ds trace commit/1a2b3c4"),
    ),
    "reconcile": (("And wait for the result", "gitops-ds reconcile --wait"),),
    "suspend": (
        ("The repository", "gitops-ds suspend"),
        ("One agent", "gitops-ds suspend ds/node-exporter -n node-agents"),
        ("With a reason", 'gitops-ds suspend ds/node-exporter --reason "incident 42"'),
    ),
    "resume": (("The repository", "gitops-ds resume"),),
    "approve": (
        ("A plan above the guards", "gitops-ds approve 97dfe9b512e3b06c-12"),
        ("A stage of a rollout", "gitops-ds approve ds/node-exporter eu-west"),
    ),
    "hold": (("The newest commit", "gitops-ds hold origin/main"),),
    "release": (("A commit on hold", "gitops-ds release 1a2b3c4"),),
    "history": (
        ("Revisions with commits and authors", "gitops-ds history ds/node-exporter"),
        ("The difference of two templates", "gitops-ds history ds/node-exporter --diff 2 3"),
    ),
    "rollback": (
        ("The commit, printed only", "gitops-ds rollback ds/node-exporter"),
        ("Pushed, until it is rolled out", "gitops-ds rollback ds/node-exporter --push --wait"),
        ("As a pull request", "gitops-ds rollback ds/node-exporter --to-revision 2 --pull-request"),
    ),
    "drift": (
        ("Of all DaemonSets", "gitops-ds drift"),
        ("The commit that keeps the change", "gitops-ds drift ds/node-exporter --print"),
    ),
    "restart": (
        (
            "The commit, printed only",
            "gitops-ds restart ds/node-exporter --reason 'A new certificate'",
        ),
    ),
    "demo": (("With the page", "gitops-ds demo --page"),),
    "doctor": (("With the settings of the service", "gitops-ds doctor --settings settings.yaml"),),
    "support-dump": (("Without logs", "gitops-ds support-dump --no-logs"),),
    "uninstall": (("The plan only", "gitops-ds uninstall --dry-run"),),
    "completion": (("For the current shell", "source <(gitops-ds completion bash)"),),
    "version": (("For scripts", "gitops-ds version -o json"),),
    "help": (("As check --help", "gitops-ds help check"),),
}


def text(command: str) -> str:
    """The examples of a command for its `--help`; `\\b` keeps the line breaks."""
    lines = [f"  # {purpose}\n  {line}" for purpose, line in EXAMPLES.get(command, ())]
    return "\b\nExamples:\n" + "\n".join(lines) if lines else ""
