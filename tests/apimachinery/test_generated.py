"""What `make schemas` generates is all of the versions that scripts/modules.py names, and each
script runs without arguments.
"""

from __future__ import annotations

import re
from pathlib import Path

import orjson

from gitops_ds.apimachinery import builtin_resources, openapi

ROOT = Path(__file__).resolve().parents[2]
MODULES = (ROOT / "scripts/modules.py").read_text()
VERSIONS = dict(re.findall(r'"(1\.\d+)": "([\d.]+)"', MODULES))
NEWEST = VERSIONS["1." + str(max(int(version.partition(".")[2]) for version in VERSIONS))]


def test_what_is_generated_is_of_the_versions_that_are_named() -> None:
    schemas = {
        file.name.removesuffix(".json.gz").removeprefix("v")
        for file in (ROOT / "schemas/kubernetes").glob("v*.json.gz")
    }
    assert schemas == set(VERSIONS) == set(openapi.VERSIONS)
    assert (
        orjson.loads((ROOT / "schemas/kubernetes/types.json").read_bytes())["version"]
        == f"0.{NEWEST}"
    )
    assert f"Kubernetes v1.{NEWEST} " in str(builtin_resources.__doc__)


def test_no_script_of_the_target_takes_an_argument_that_the_target_does_not_give() -> None:
    recipe = re.search(r"^schemas:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    scripts = re.findall(r"scripts/([\w-]+)$", recipe[1], re.MULTILINE)
    assert scripts == ["schemas", "served", "go-types", "structure"]
    for script in scripts:
        text = (ROOT / "scripts" / script).read_text()
        assert "sys.argv" not in text
        assert "import modules" in text, "the versions are in one place"
