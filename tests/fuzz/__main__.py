"""`python -m tests.fuzz TARGET [libFuzzer's options]`: coverage-guided, by atheris, from a corpus
of the target's seeds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gitops_ds"], enable_loader_override=False):
    from tests.fuzz import targets


def main() -> None:
    """Runs one target up to the limits of its options; an input that breaks a property ends it and
    is written to the current directory.
    """
    name, *options = sys.argv[1:] or [""]
    if name not in targets.TARGETS:
        raise SystemExit(f"name a target: {', '.join(targets.TARGETS)}")
    with tempfile.TemporaryDirectory() as directory:
        corpus = Path(directory) / "corpus"
        corpus.mkdir()
        for number, data in enumerate(targets.seeds(name)):
            (corpus / f"{number:04d}").write_bytes(data)
        dictionary = Path(directory) / "words"
        quoted = ("".join(f"\\x{byte:02x}" for byte in word) for word in targets.words(name))
        dictionary.write_text("".join(f'"{word}"\n' for word in quoted))
        atheris.Setup(
            [sys.argv[0], *options, f"-dict={dictionary}", str(corpus)], targets.TARGETS[name]
        )
        atheris.Fuzz()


main()
