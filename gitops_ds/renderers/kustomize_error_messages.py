"""Translates kustomize's errors into a message and the line of the repository. Pure."""

from __future__ import annotations

import posixpath
import re
from pathlib import PurePosixPath

from gitops_ds.model.finding import Place
from gitops_ds.model.sources.source_tree import Files
from gitops_ds.render.kustomization import Kustomization
from gitops_ds.yaml import parser

_KLOG = re.compile(r'^E\d{4} .*?\] "command failed" err="(?P<words>.*)"$', re.DOTALL)
_FIELD = re.compile(r'unknown field "([^"]+)"')
# Files in its messages: from 'a.yaml', in File: a.yaml, path: a.yaml
_FILE = re.compile(r"""(?:'|"|(?:File|path): ?)([\w./-]+\.(?:ya?ml|json))\b""")
_LINE = re.compile(r"yaml: line (\d+)")


def sentence(stderr: str, root: str) -> str:
    """kustomize's last error without the paths of our copy `root` and kubectl's log prefix; at
    most 500 characters.
    """
    lines = [
        line
        for line in stderr.strip().splitlines()
        if line.strip() and not line.startswith("# Warning")
    ]
    text = " ".join(lines[-3:]) if lines else "without an error message"
    if klog := _KLOG.match(text):
        text = klog["words"].replace('\\"', '"').replace("\\n", " ")
    text = (
        text.removeprefix("Error: ")
        .replace(f"{root}/", "")
        .replace(root, ".")
        .replace(posixpath.dirname(root), ".")
    )
    return "".join(c for c in text if c.isprintable())[:500]


def place(message: str, of: Kustomization, files: Files) -> Place:
    """The key, file or entry in the message; the kustomization's file without one."""
    own = str(of.file)
    if (field := _FIELD.search(message)) and "ustomization" in message:
        return parser.place(own, files[of.file], 0, (field[1],), key=True)
    for name in reversed(_FILE.findall(message)):
        file = PurePosixPath(posixpath.normpath(posixpath.join(str(of.file.parent), name)))
        file = file if file in files else PurePosixPath(name)
        if file in files and file != of.file:
            line = _LINE.search(message)
            if line:
                return Place(str(file), int(line[1]), 1)
            entry = next(
                (named.path for named in of.names if posixpath.basename(named.text) == file.name),
                None,
            )
            return parser.place(own, files[of.file], 0, entry) if entry else Place(str(file))
    return Place(own)
