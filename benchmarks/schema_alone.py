"""A process that reads the manifests of a directory and checks them by their schema: what
kubeconform does. It is measured.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from benchmarks import validate

gc.set_threshold(50_000, 20, 100)  # as the command line has it
sys.exit(validate.ours(sorted(Path(sys.argv[1]).iterdir())))
