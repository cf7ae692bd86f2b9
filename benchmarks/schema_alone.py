"""The measured process: reads the manifests of a directory and validates them by schema, like
kubeconform.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from benchmarks import validate

gc.set_threshold(50_000, 20, 100)  # as in the command line
sys.exit(validate.ours(sorted(Path(sys.argv[1]).iterdir())))
