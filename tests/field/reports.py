"""The table of reports about manifests: verdicts, and pairs of commits."""

# ruff: noqa: E501  a table is read by its columns
from __future__ import annotations

from typing import Any, Final, NamedTuple


class Verdict(NamedTuple):
    """A manifest, and the rule that refuses it; empty if the API server takes it, and a second
    reconciliation writes nothing.
    """

    report: str
    manifest: str
    refused: str = ""
    by_kubectl: bool = False  # kubectl expands anchors before the API server sees the file


class Commits(NamedTuple):
    """Commits of one object, applied in turn, and a value of the live object at the end."""

    report: str
    commits: tuple[str, ...]
    path: tuple[str | int, ...] = ()
    value: Any = None
    refused: bool = False  # by the API server, at the last commit
    by_others: str = ""  # a merge patch of another writer before the last commit
    writes: bool = True  # at the last commit
    by_kubectl: bool = False  # the first commit, which is taken over


def daemonset(container: str = "", pod: str = "", spec: str = "", metadata: str = "") -> str:
    """A DaemonSet with additional lines of flow style."""
    return f"""apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: agent, {metadata}}}
spec:
  selector: {{matchLabels: {{app: agent}}}}
  {spec}
  template:
    metadata: {{labels: {{app: agent}}}}
    spec:
      {pod}
      containers:
      - {{name: agent, image: "registry.example.com/agent:1", {container}}}
"""


def deployment(container: str) -> str:
    return daemonset(container).replace("DaemonSet", "Deployment")


def one(kind: str, body: str, version: str = "v1") -> str:
    """An object of another kind."""
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: agent}}\n{body}\n"


RBAC: Final = "rbac.authorization.k8s.io/v1"


def binding(subject: str) -> str:
    role = "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}"
    return one("ClusterRoleBinding", f"{role}\nsubjects: [{{{subject}}}]", RBAC)


def definition(spec: str, kind: str = "Probe", version: str = "v1", rest: str = "") -> str:
    """A CustomResourceDefinition with the schema of its `spec`."""
    schema = f"{{openAPIV3Schema: {{type: object, properties: {{spec: {spec}}}}}}}"
    return f"""apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {kind.lower()}s.field.example.com}}
spec:
  group: field.example.com
  scope: Namespaced
  names: {{plural: {kind.lower()}s, kind: {kind}, singular: {kind.lower()}, listKind: {kind}List}}
  versions: [{{name: {version}, served: true, storage: true, schema: {schema}}}]
{rest}
"""


def anchored(second: str) -> str:
    """A second container that repeats the first one."""
    head, _, _ = daemonset().rpartition("      - {name: agent")
    return f'{head}      - &first\n        name: agent\n        image: "registry.example.com/agent:1"\n        tty: true\n      - {second}\n        name: second\n'


def job(spec: str) -> str:
    pod = "{restartPolicy: Never, containers: [{name: a, image: a}]}"
    return one("Job", f"spec: {{template: {{spec: {pod}}}, {spec}}}", "batch/v1")


def updated(max_unavailable: str) -> str:
    strategy = f"{{rollingUpdate: {{maxUnavailable: {max_unavailable}}}}}"
    return daemonset(spec=f"updateStrategy: {strategy}")


VERDICTS: Final = (
    Verdict(
        "yannh/kubeconform#341",
        daemonset().replace("spec:\n  sel", "specDOESNOTEXIST:\n  sel"),
        "DS003",
    ),
    Verdict(
        "yannh/kubeconform#313",
        one("Service", "spec: {ports: [{port: 80}], true: one, invalid: two}"),
        "DS003",
    ),
    Verdict("yannh/kubeconform#285", job("serviceAccountName: agent"), "DS003"),
    Verdict(
        "yannh/kubeconform#148",
        daemonset().replace("      containers:\n      ", "  containers:\n  "),
        "DS003",
    ),
    Verdict("kubernetes-sigs/kustomize#6140", updated('"3"'), "DS204"),
    Verdict(
        "kubernetes-sigs/kustomize#6140 a number beyond 32 bits", updated("2147483648"), "DS004"
    ),
    Verdict("kubernetes-sigs/kustomize#3424", updated("3")),
    Verdict("kubernetes-sigs/kustomize#2479", daemonset(metadata="labels: {a: true}"), "DS004"),
    Verdict("kubernetes/kubernetes#86772", daemonset(metadata="labels: {a: 1e003}"), "DS004"),
    Verdict("kubernetes/kubernetes#86772 with quotes", daemonset(metadata='labels: {a: "1e003"}')),
    Verdict("kubernetes-sigs/kustomize#5995", daemonset(metadata="labels: {a: null}")),
    Verdict("kubernetes-sigs/kustomize#2734", one("ConfigMap", "data: {a: null, b: x}")),
    Verdict(
        "kubernetes-sigs/kustomize#2734 in a template",
        daemonset(pod="nodeSelector: {a: null}").replace(
            "app: agent}}\n    spec", "app: agent, b: null}, annotations: {c: null}}\n    spec"
        ),
    ),
    Verdict("kubernetes-sigs/kustomize#2734 of a Secret", one("Secret", "data: {a: null}")),
    Verdict("argoproj/argo-cd#25240", daemonset("resources: {limits: {cpu: null, memory: 1Gi}}")),
    Verdict(
        "argoproj/argo-cd#25240 with a request",
        daemonset("resources: {limits: {cpu: null}, requests: {cpu: 10m}}"),
        "DS403",
    ),
    Verdict(
        "kubernetes-sigs/kustomize#4928",
        one("ConfigMap", "data: {6443: foobar, 9110: foo, true: a, 0x10: b}"),
    ),
    Verdict("fluxcd/kustomize-controller#785", one("Secret", "stringData: {PORT: 8080}"), "DS004"),
    Verdict("fluxcd/kustomize-controller#503", one("Secret", "data: {a: {b: c}}"), "DS004"),
    Verdict(
        "fluxcd/kustomize-controller#960 fluxcd/kustomize-controller#1008",
        daemonset(metadata="labels: {a: kustomize-(devel)}"),
        "DS011",
    ),
    Verdict(
        "fluxcd/kustomize-controller#1081",
        definition("{type: string, pattern: '^\\d+(\\.\\d+)*$'}"),
    ),
    Verdict(
        "fluxcd/flux2#2743",
        definition(
            "{type: object}",
            "Gauge",
            rest='status: {acceptedNames: {kind: "", plural: ""}, conditions: [], storedVersions: []}',
        ),
    ),
    Verdict(
        "fluxcd/flux2#3949",
        one("Namespace", "").replace("agent}", "field-agent, namespace: default}"),
    ),
    Verdict(
        "argoproj/argo-cd#136",
        one(
            "Service",
            "spec: {type: LoadBalancer, loadBalancerSourceRanges: [], ports: [{port: 80}]}",
        ),
    ),
    Verdict("argoproj/argo-cd#3641", daemonset() + "status: {}\n"),
    Verdict("argoproj/argo-cd#17394", daemonset() + "status: {numberReady: 3, conditions: null}\n"),
    Verdict(
        "argoproj/argo-cd#17394 with an unknown field",
        daemonset() + "status: {ready: 3}\n",
        "DS003",
    ),
    Verdict(
        "akuity/kargo#3444",
        daemonset("env: [{name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]"),
    ),
    Verdict(
        "akuity/kargo#3444 with an empty divisor",
        daemonset(
            'env: [{name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: ""}}}]'
        ),
        "DS006",
    ),
    Verdict(
        "fluxcd/flux2#2404",
        daemonset(metadata="managedFields: [{manager: kubectl, operation: Apply}]"),
        "DS006",
    ),
    Verdict("fluxcd/flux2#2404 of no field", daemonset(metadata="managedFields: []"), "DS006"),
    Verdict("fluxcd/flux2#2404 with null", daemonset(metadata="managedFields: null")),
    Verdict("kubernetes-sigs/kustomize#3877", binding("kind: ServiceAccount, name: a"), "DS005"),
    Verdict(
        "kubernetes-sigs/kustomize#4015", binding("kind: ServiceAccount, name: a, namespace: argo")
    ),
    Verdict(
        "kubernetes-sigs/kustomize#4747 kubernetes-sigs/kustomize#5061",
        anchored("<<: *first"),
        by_kubectl=True,
    ),
    Verdict(
        "mikefarah/yq#1083 zarf-dev/zarf#1946", anchored("!!merge <<: *first"), by_kubectl=True
    ),
    Verdict(
        "kubernetes-sigs/kustomize#3824",
        anchored("image: &image registry.example.com/a:1\n        args: [*image]"),
    ),
    Verdict(
        "stackrox/kube-linter#529",
        daemonset(
            "securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [SYS_ADMIN], drop: [ALL]}}"
        ),
    ),
    Verdict(
        "stackrox/kube-linter#529 with the prefix",
        daemonset(
            "securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}"
        ),
        "DS006",
    ),
    Verdict(
        "stackrox/kube-linter#457", daemonset('livenessProbe: {tcpSocket: {port: "8080"}}'), "DS006"
    ),
    Verdict(
        "stackrox/kube-linter#261",
        daemonset(
            pod="initContainers: [{name: i, image: i, livenessProbe: {exec: {command: [a]}}}]"
        ),
        "DS006",
    ),
    Verdict(
        "kubernetes/kubernetes#92332",
        daemonset("ports: [{containerPort: 80}, {containerPort: 81, hostPort: 81}]"),
    ),
)

VARIABLES: Final = "{name: A, value: a}", '{name: B, value: "$(A)"}'
CONTAINER: Final = ("spec", "template", "spec", "containers", 0)

COMMITS: Final = (
    Commits("argoproj/argo-cd#29109 fluxcd/kustomize-controller#576", (one("Secret", "stringData: {a: x, b: z}"), one("Secret", "stringData: {a: x}")), ("data",), {"a": "eA=="}),
    Commits("argoproj/argo-cd#24882", (one("ConfigMap", "data: {a: x, b: z}"), one("ConfigMap", "data: {a: x}")), ("data",), {"a": "x"}),
    Commits("kubernetes/kubernetes#108708", tuple(daemonset(f"env: [{', '.join(order)}]") for order in (VARIABLES, VARIABLES[::-1])), (*CONTAINER, "env", 0, "name"), "B"),
    Commits("kubernetes/kubernetes#108708 of init containers", tuple(daemonset(pod=f"initContainers: [{{name: {a}, image: a}}, {{name: {b}, image: a}}]") for a, b in ("ij", "ji")), ("spec", "template", "spec", "initContainers", 0, "name"), "j"),
    Commits("kubernetes/kubernetes#108708 without a commit in its annotations", tuple(deployment(f"env: [{', '.join(order)}]") for order in (VARIABLES, VARIABLES[::-1])), (*CONTAINER, "env", 0, "name"), "B"),
    Commits("kubernetes/kubernetes#124050", (daemonset("securityContext: {privileged: true}"), daemonset("securityContext: {}")), (*CONTAINER, "securityContext"), {}),
    Commits("kubernetes/kubernetes#124050 of the pod", (daemonset(pod="affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}"), daemonset(pod="affinity: {}")), ("spec", "template", "spec", "affinity"), {}),
    Commits("kubernetes/kubernetes#97970", (one("Service", "spec: {selector: {a: b}, ports: [{port: 80}]}"),) * 2, ("spec", "selector"), {"a": "b"}, by_others='{"spec": {"selector": {"my": "app"}}}'),
    Commits("argoproj/argo-cd#16092", (one("ConfigMap", "data: {a: x}"),) * 2, ("data",), {"a": "x", "b": "z"}, by_others='{"data": {"b": "z"}}', writes=False),
    Commits("fluxcd/kustomize-controller#923", tuple(daemonset(f"tty: {tty}, ports: [{{containerPort: 9102}}, {{containerPort: 9125}}, {{containerPort: 9125, protocol: UDP}}]") for tty in ("true", "false")), (*CONTAINER, "ports", 2, "protocol"), "UDP"),
    Commits("kubernetes-sigs/kustomize#6140 back to a number", (updated("10%"), updated("3")), ("spec", "updateStrategy", "rollingUpdate", "maxUnavailable"), 3),
    Commits("argoproj/argo-cd#18402", (daemonset('env: [{name: A, value: "1"}, {name: A, value: "2"}]'), daemonset('env: [{name: A, value: "2"}]')), (*CONTAINER, "env"), [{"name": "A", "value": "2"}], by_kubectl=True),
    Commits("fluxcd/flux2#2743", (definition("{type: object}", "Meter"), definition("{type: object}", "Meter", "v2")), ("spec", "versions", 0, "name"), "v1", refused=True),
)  # fmt: skip
