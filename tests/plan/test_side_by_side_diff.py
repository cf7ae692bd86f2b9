"""The diff of two objects as pairs of lines."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.deploy.plan import side_by_side_diff
from gitops_ds.deploy.plan.side_by_side_diff import DiffRow


def config_map(data: dict[str, str], **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "default"},
        "data": data,
        **more,
    }


def changed(live: dict[str, Any], expected: dict[str, Any]) -> list[DiffRow]:
    rows = side_by_side_diff.compare(live, expected).rows
    return [row for row in rows if row.kind not in ("same", "skipped")]


def test_equal_objects_are_the_same_also_with_fields_that_git_does_not_set() -> None:
    live = config_map({"a": "1"}, status={"x": 1}, immutable=False)
    live["metadata"]["uid"] = "u"
    difference = side_by_side_diff.compare(live, config_map({"a": "1"}, status={"x": 2}))
    assert difference.same
    assert {row.kind for row in difference.rows} == {"skipped"}


def test_a_changed_a_missing_and_an_additional_line_have_the_numbers_of_their_texts() -> None:
    live = config_map({"a": "1", "b": "2"})
    expected = config_map({"a": "3", "b": "2", "c": "4"})
    first, second = changed(live, expected)
    assert (first.kind, first.left, first.right) == ("changed", '  a: "1"', '  a: "3"')
    assert (second.kind, second.left, second.right) == ("new", "", '  c: "4"')
    assert (second.left_number, second.right_number) == (0, first.right_number + 2)
    assert first.left_number == first.right_number > 1
    assert not side_by_side_diff.compare(live, expected).same


def test_a_line_that_only_the_live_object_has_is_shown_as_removed() -> None:
    live = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "spec": {"l": [1, 2]}}
    expected = {**live, "spec": {"l": [1]}}
    (row,) = changed(live, expected)
    assert (row.kind, row.left, row.right, row.right_number) == ("gone", "  - 2", "", 0)


def test_items_with_names_are_compared_by_name() -> None:
    def body(*items: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "X",
            "metadata": {"name": "x"},
            "spec": {"items": [*items]},
        }

    live = body({"name": "a", "v": 1, "server": 5}, {"name": "b", "v": 2, "server": 6})
    assert side_by_side_diff.compare(live, body({"name": "a", "v": 1}, {"name": "b", "v": 2})).same
    (row,) = changed(live, body({"name": "a", "v": 1}, {"name": "b", "v": 3}))
    assert (row.left.strip(), row.right.strip()) == ("v: 2", "v: 3")
    unnamed = body({"v": 1, "server": 5})
    assert side_by_side_diff.compare(unnamed, body({"v": 1})).same


def test_three_equal_lines_stay_around_a_difference() -> None:
    data = {f"k{number:02}": "x" for number in range(20)}
    difference = side_by_side_diff.compare(config_map(data), config_map({**data, "k10": "y"})).rows
    kinds = [row.kind for row in difference]
    assert kinds == ["skipped", *["same"] * 3, "changed", *["same"] * 3, "skipped"]
    assert difference[4].left == "  k10: x"
    assert (difference[0].skipped, difference[-1].skipped) == (
        13,
        6,
    )  # 6 lines before the data, k00 to k06


def test_a_secret_that_differs_is_named_and_hidden() -> None:
    def secret(value: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "namespace": "default"},
            "data": {"password": value},
        }

    difference = side_by_side_diff.compare(secret("c2VjcmV0LW9uZQ=="), secret("c2VjcmV0LXR3bw=="))
    assert difference.secret == ("data.password",)
    assert not difference.same
    assert "c2VjcmV0" not in str(difference)
    assert (
        side_by_side_diff.compare(secret("c2VjcmV0LW9uZQ=="), secret("c2VjcmV0LW9uZQ==")).secret
        == ()
    )
    base = config_map({"a": "1"})
    with_secret = config_map({"a": "1", "password": "hunter2"})
    assert side_by_side_diff.compare(base, with_secret).secret == ()  # it is new
    assert side_by_side_diff.compare(with_secret, base).secret == ()


def test_each_line_of_a_block_has_its_own_number() -> None:
    live = config_map({"a": "1", "b": "2", "z": "9"})
    expected = config_map({"a": "3", "b": "4", "c": "5", "d": "6", "z": "9"})
    rows = changed(live, expected)
    first = rows[0].left_number
    assert [(row.kind, row.left, row.left_number, row.right, row.right_number) for row in rows] == [
        ("changed", '  a: "1"', first, '  a: "3"', first),
        ("changed", '  b: "2"', first + 1, '  b: "4"', first + 1),
        ("new", "", 0, '  c: "5"', first + 2),
        ("new", "", 0, '  d: "6"', first + 3),
    ]
    live = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "spec": {"l": [1, 2, 3]}}
    rows = changed(live, {**live, "spec": {"l": [9]}})
    assert [(row.kind, row.left, row.right) for row in rows] == [
        ("changed", "  - 1", "  - 9"),
        ("gone", "  - 2", ""),
        ("gone", "  - 3", ""),
    ]
    assert DiffRow("skipped") == DiffRow("skipped", "", "", 0, 0, 0)


@pytest.mark.parametrize("wanted", [5, None, {}, {"name": "a"}])
def test_a_value_of_another_type_is_shown_with_all_fields(wanted: Any) -> None:
    live = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "spec": {"l": [{"b": 1}]}}
    rows = side_by_side_diff.compare(live, {**live, "spec": {"l": wanted}}).rows
    assert "  - b: 1" in [row.left for row in rows if row.kind != "same"]
    rows = side_by_side_diff.compare({**live, "spec": {"l": wanted}}, live).rows
    assert "  - b: 1" in [row.right for row in rows if row.kind != "same"]


def test_changes_at_both_ends_of_a_long_list_leave_the_equal_items_between_them() -> None:
    def body(*items: int) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "X",
            "metadata": {"name": "x"},
            "spec": {"l": [items[0], *[0] * 300, items[1]]},
        }

    rows = changed(body(1, 2), body(3, 4))
    assert [(row.left, row.right) for row in rows] == [("  - 1", "  - 3"), ("  - 2", "  - 4")]
