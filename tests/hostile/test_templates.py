"""ConfigMaps with templates that mean harm: they run long, and hold up neither the service nor the
templates of others.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time

import pytest

from gitops_ds.core.values import replace
from gitops_ds.deploy.templates import template_object
from gitops_ds.deploy.templates.template_object import TemplateObject
from gitops_ds.deploy.templates.template_selector import TemplateSelector
from gitops_ds.service.prepare_process import Preparing
from gitops_ds.source import rules
from gitops_ds.source.sandbox import limited_process, memory
from gitops_ds.source.sandbox.limited_process import ProcessLimits, ProcessResult
from tests.plan.world import daemonset

pytestmark = pytest.mark.system
MOST = 1 << 20  # bytes of a ConfigMap
SECONDS = 1.0  # of the hostile one; a good one has as many as a slow machine needs


def held(name: str, text: str, kind: str = "ConfigMap") -> TemplateObject:
    body = {
        "kind": kind,
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
    }
    return template_object.read({**body, "data": {"a.yaml": text}})


def many(name: str) -> TemplateObject:
    return held(
        name,
        "---\n".join(
            f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{n}}}\n" for n in range(60_000)
        ),
    )


def test_a_slow_template_fails_and_the_others_are_rendered_outside_of_the_event_loop() -> None:
    hostile, good = many("hostile"), held("good", json.dumps(daemonset("agent", namespace="n")))

    async def call(
        module: str, request: bytes, limits: ProcessLimits, **options: bool
    ) -> ProcessResult:
        seconds = SECONDS if b"hostile" in request else 300.0
        return await limited_process.call(
            module, request, replace(limits, seconds=seconds), **options
        )

    preparing = Preparing(memory.UNLIMITED, call=call)
    began = time.process_time()
    rendered = asyncio.run(preparing.rendered((hostile, good), TemplateSelector()))
    assert time.process_time() - began < SECONDS, "of this process alone"
    (finding,) = rendered[hostile.commit].broken
    assert (finding.rule, finding.refused) == (rules.OVER_LIMIT.id, True)
    assert f"preparing configmap/n/hostile takes more than {SECONDS:g} s" in finding.message
    assert [key.name for key in rendered[good.commit].manifests] == ["agent"]


def test_a_process_that_outlives_its_limit_is_noticed() -> None:
    async def main() -> None:
        over = asyncio.Event()

        async def endless(*_: object, **__: object) -> ProcessResult:
            await over.wait()
            return ProcessResult(problem="was stopped")

        preparing = Preparing(memory.UNLIMITED, seconds=(0.0,), call=endless)
        assert preparing.seconds_over_limit == 0
        running = asyncio.create_task(preparing.rendered((many("hostile"),), TemplateSelector()))
        while not preparing.seconds_over_limit:
            await asyncio.sleep(0)
        over.set()
        await running
        assert preparing.seconds_over_limit == 0

    asyncio.run(main())


def test_no_message_of_the_process_has_the_value_of_a_secret() -> None:
    text = base64.b64encode(
        b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: hush-hush}\n" * 2
    ).decode()
    secret = held("hidden", text, "Secret")
    rendered = asyncio.run(Preparing(memory.UNLIMITED).rendered((secret,), TemplateSelector()))
    assert rendered[secret.commit].broken
    assert "hush-hush" not in str(rendered[secret.commit].broken)


@pytest.mark.parametrize(
    "text",
    [
        "\n" * MOST,
        " " * MOST,
        "{" * MOST,
        "- " * (MOST // 2),
        "\n-" * (MOST // 2),
        "apiVersion " * 90_000,
    ],
)
def test_whether_a_key_holds_a_template_is_found_in_time_that_grows_with_its_length_only(
    text: str,
) -> None:
    body = {"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "data": {"key": text}}
    began = time.process_time()
    assert not template_object.read(body).files
    assert time.process_time() - began < 5
