"""What `make schemas` generates covers the supported versions of Kubernetes, and each script runs
without arguments.
"""

from __future__ import annotations

import re
from pathlib import Path

import orjson

from gitops_ds.kube.apimachinery import builtin_resources, kubernetes_versions

ROOT = Path(__file__).resolve().parents[2]
NEWEST = kubernetes_versions.RELEASES[kubernetes_versions.NEWEST]


def test_generated_files_are_of_the_named_versions() -> None:
    schemas = {
        file.name.removesuffix(".json.gz").removeprefix("v")
        for file in (ROOT / "schemas/kubernetes").glob("v*.json.gz")
    }
    assert schemas == set(kubernetes_versions.VERSIONS)
    assert (
        orjson.loads((ROOT / "schemas/kubernetes/types.json").read_bytes())["version"]
        == f"0.{NEWEST.removeprefix('1.')}"
    )
    assert f"Kubernetes v{NEWEST} " in str(builtin_resources.__doc__)


def test_no_script_of_the_target_takes_an_argument_that_the_target_does_not_give() -> None:
    recipe = re.search(r"^schemas:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    scripts = re.findall(r"scripts/([\w-]+)$", recipe[1], re.MULTILINE)
    assert scripts == ["settings-schema", "schemas", "served", "go-types", "structure"]
    for script in scripts:
        text = (ROOT / "scripts" / script).read_text()
        assert "sys.argv" not in text
        if script != "settings-schema":
            assert "import modules" in text, "the versions are in one place"
