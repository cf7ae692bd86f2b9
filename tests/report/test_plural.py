"""One thing is not `things`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gitops_ds
from gitops_ds.core.change import Cost
from gitops_ds.core.plain_text import counted, listed
from gitops_ds.kube.apimachinery import request_costs


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (counted(0, "file"), "0 files"),
        (counted(1, "file"), "1 file"),
        (counted(1_000, "file"), "1,000 files"),
        (counted(2, "batch", "batches"), "2 batches"),
        (counted(1, "batch", "batches"), "1 batch"),
    ],
)
def test_the_noun_follows_the_number(words: str, expected: str) -> None:
    assert words == expected


def test_of_many_things_the_first_are_named_and_the_others_counted() -> None:
    assert [listed("abcd"[:size], 2) for size in range(5)] == [
        "",
        "a",
        "a, b",
        "a, b and 1 more",
        "a, b and 2 more",
    ]


def test_of_many_things_only_the_named_ones_are_written() -> None:
    written: list[str] = []

    def text(one: str) -> str:
        written.append(one)
        return one.upper()

    assert (listed("abc", 1, text), written) == ("A and 2 more", ["a"])


def test_counts_at_the_start_of_messages_use_one_function() -> None:
    """What a sum is of may be one: `f"{len(x)} files"` is wrong for it. `3 of {n} nodes` names a
    total.
    """
    bare = re.compile(
        r"(?<!of )\{len\([^{}]*\)(?::,)?\} "
        r"(?:files|objects|findings|secrets|nodes|parts|changes)\b.*"
    )
    files = [
        file
        for file in Path(gitops_ds.__file__).parent.rglob("*.py")
        if "simulator" not in file.parts
    ]
    matches = [
        (file.name, line) for file in files for line in bare.findall(file.read_text("utf-8"))
    ]
    assert [
        one for one in matches if not re.search(r"if len\(.*\) > 1|are more than", one[1])
    ] == []


def test_a_sum_of_cpu_is_in_cores_however_small() -> None:
    costs = [Cost("cpu", -100, 3, -300), Cost("memory", 1000 * 2**20, 3, 3000 * 2**20)]
    assert request_costs.summed(costs) == "-0.3 cores, +3Mi memory"
    assert request_costs.summed([Cost("cpu", 100, 472, 47_200)]) == "+47.2 cores"
