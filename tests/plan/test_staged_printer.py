"""The preview of a staged rollout in words and as JSON."""

from __future__ import annotations

from gitops_ds.model.change import StagedPreview, StagePreview
from gitops_ds.model.live import Census
from gitops_ds.model.values import replace
from gitops_ds.plan import printers

NODES = tuple(f"n{index}" for index in range(8))
PREVIEW = StagedPreview(
    stages=(
        StagePreview("canary", NODES[:1], 0.0, 600.4, ("approval of team-a", "gate flow")),
        StagePreview("rest", NODES[1:], 600.4),
        StagePreview("none", ()),
    ),
    seconds=7200.6,
    cap=1200,
    parked=("n8", "n9"),
    start=30.4,
    stop=5.5,
)
POOLS = Census((), pools=dict.fromkeys((*NODES, *PREVIEW.parked), "small"))


def lines(preview: StagedPreview, census: Census | None = None) -> list[str]:
    return list(printers.staged_lines(preview, census))


def test_the_stages_their_first_nodes_and_their_times() -> None:
    assert lines(PREVIEW) == [
        (
            "staged rollout of 8 nodes in 3 stages, about 2.0 h without faults "
            "(a pod starts in 30 s and stops in 6 s), at most 1,200 at risk:"
        ),
        "  canary: 1 node: n0; from 0 s to 10 min; waits for approval of team-a, gate flow",
        "  rest: 7 nodes: n1, n2, n3, n4, n5 and 2 more; from 10 min",
        "  none: 0 nodes",
        "  parked until they are well again: 2 nodes: n8, n9",
    ]
    assert lines(PREVIEW, POOLS) == lines(PREVIEW)


def test_declared_nodes_have_no_names() -> None:
    found = lines(PREVIEW, replace(POOLS, declared=True))
    assert found[1].startswith("  canary: 1 node of pool small; from 0 s")
    assert found[2] == "  rest: 7 nodes of pool small; from 10 min"
    assert found[-1].endswith("2 nodes of pool small")


def test_a_rollout_without_an_end_or_without_nodes() -> None:
    endless = replace(PREVIEW, seconds=None, parked=())
    assert lines(endless)[0].startswith(
        "staged rollout of 8 nodes in 3 stages, of unknown length without faults (a pod starts"
    )
    assert len(lines(endless)) == 4
    empty = StagedPreview((StagePreview("canary", ()), StagePreview("rest", ())), 0.0, 1)
    assert lines(empty) == ["staged rollout in 2 stages: canary, rest"]


def test_as_json() -> None:
    found = printers.staged_json(PREVIEW, POOLS)
    assert found == printers.staged_json(PREVIEW, None)
    assert found == {
        "seconds": 7201,
        "cap": 1200,
        "podStart": 30.4,
        "podStop": 5.5,
        "parked": ["n8", "n9"],
        "stages": [
            {
                "name": "canary",
                "count": 1,
                "nodes": ["n0"],
                "begins": 0,
                "ends": 600,
                "waits": ["approval of team-a", "gate flow"],
            },
            {
                "name": "rest",
                "count": 7,
                "nodes": list(NODES[1:]),
                "begins": 600,
                "ends": None,
                "waits": [],
            },
            {"name": "none", "count": 0, "nodes": [], "begins": None, "ends": None, "waits": []},
        ],
    }
    declared = printers.staged_json(replace(PREVIEW, seconds=None), replace(POOLS, declared=True))
    assert declared["seconds"] is None
    assert declared["parked"] == []
    assert [one["nodes"] for one in declared["stages"]] == [[], [], []]
    assert [one["count"] for one in declared["stages"]] == [1, 7, 0]
