"""The documented permissions are those of deploy/, and no repository needs others by default."""

from __future__ import annotations

from tests.installation import used_rights

# Objects that left Git remain while pruning is off. Pods and ControllerRevisions are of staged
# rollouts, ConfigMaps those that no pod uses any more.
DELETED = {"configmaps", "controllerrevisions", "pods"}


def test_the_page_has_every_permission_of_deploy() -> None:
    assert used_rights.on_page() == used_rights.of_deploy()


def test_by_default_nothing_of_a_repository_is_deleted_but_what_is_unused() -> None:
    rights = used_rights.of_deploy()
    assert {right.resource for right in rights if right.verb == "delete"} == DELETED
    assert not [right for right in rights if right.verb in ("*", "deletecollection", "escalate")]
