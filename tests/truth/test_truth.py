"""Our verdict on mutated manifests is the API server's; a difference is printed with its seed, both
verdicts and the mutations.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.controlplane import ControlPlane
from tests.truth import verdicts

SEED, COUNT = 2026, 6000


@pytest.mark.slow
def test_a_seed_gives_the_same_manifests() -> None:
    first, again = (
        [(one.mutations, one.data) for one in verdicts.cases(SEED, 50)] for _ in range(2)
    )
    assert first == again
    assert first != [(one.mutations, one.data) for one in verdicts.cases(SEED + 1, 50)]


@pytest.mark.slow
@pytest.mark.controlplane
def test_our_verdict_is_the_api_servers(api_server: ControlPlane) -> None:
    judgements = asyncio.run(verdicts.judged(api_server, list(verdicts.cases(SEED, COUNT))))
    decided = [judgement for judgement in judgements if judgement.decided]
    wrong = [one for one in decided if not one.agrees]
    refused = sum(bool(one.create or one.apply) for one in decided)
    assert len(decided) > 0.98 * COUNT
    assert 0.4 < refused / len(decided) < 0.8, "mutations with both verdicts"
    passed = [
        one
        for one in wrong
        if not one.findings and not verdicts.NOT_CLAIMED.search(one.create + one.apply)
    ]
    assert not passed, "refused for a reason that the rules claim to know\n" + "\n".join(
        map(str, passed)
    )
    assert len(wrong) <= 0.005 * len(decided), verdicts.summary(SEED, judgements)
