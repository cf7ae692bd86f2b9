"""The preview of a staged rollout as lines of text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gitops_ds.apimachinery import node_groups
from gitops_ds.model import duration
from gitops_ds.model.change import StagedPreview, StagePreview
from gitops_ds.model.live import Census
from gitops_ds.model.plain_text import counted

SHOWN_NODES = 5


def lines(preview: StagedPreview, census: Census | None) -> Iterator[str]:
    """The stages in order: their nodes, the first ones by name, and their times after the start."""
    count = counted(len(preview.stages), "stage")
    if not preview.order:
        yield f"staged rollout in {count}: {', '.join(stage.name for stage in preview.stages)}"
        return
    length = (
        "of unknown length"
        if preview.seconds is None
        else f"about {duration.words(preview.seconds)}"
    )
    assumed = f"a pod starts in {preview.start:.0f} s and stops in {preview.stop:.0f} s"
    nodes = counted(len(preview.order), "node")
    yield (
        f"staged rollout of {nodes} in {count}, {length} without faults ({assumed}), at most "
        f"{preview.cap:,} at risk:"
    )
    for stage in preview.stages:
        yield f"  {stage.name}: {_stage(stage, census)}"
    if preview.parked:
        parked = _nodes(preview.parked, census)
        yield f"  parked until they are well again: {parked}"


def _stage(stage: StagePreview, census: Census | None) -> str:
    words = _nodes(stage.nodes, census)
    if stage.begins is not None:
        ends = "" if stage.ends is None else f" to {duration.words(stage.ends)}"
        words += f"; from {duration.words(stage.begins)}{ends}"
    if stage.waits:
        words += f"; waits for {', '.join(stage.waits)}"
    return words


def _nodes(names: Sequence[str], census: Census | None) -> str:
    """The nodes in order; declared ones, which have no names, by pool."""
    if census is not None and census.declared:
        return node_groups.summary(names, census)
    count = counted(len(names), "node")
    return f"{count}: {node_groups.listed(names, SHOWN_NODES)}" if names else count


def as_json(preview: StagedPreview, census: Census | None) -> dict[str, Any]:
    """The preview as a part of a change; times in seconds after the start."""
    declared = census is not None and census.declared
    return {
        "seconds": _rounded(preview.seconds),
        "cap": preview.cap,
        "podStart": preview.start,
        "podStop": preview.stop,
        "parked": [] if declared else list(preview.parked),
        "stages": [
            {
                "name": stage.name,
                "count": len(stage.nodes),
                "nodes": [] if declared else list(stage.nodes),
                "begins": _rounded(stage.begins),
                "ends": _rounded(stage.ends),
                "waits": list(stage.waits),
            }
            for stage in preview.stages
        ],
    }


def _rounded(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)
