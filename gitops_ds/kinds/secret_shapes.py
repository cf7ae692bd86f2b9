"""What gives a secret away: the name that it goes by, or the form that its issuer documents. Pure."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "<redacted>"
# The name of a variable or a key that may hold a secret, or only speak of one (TOKEN_FILE).
TELLING: Final = re.compile(r"pass(word|wd|phrase)?$|secret|token|api[_-]?key|private[_-]?key|credential", re.IGNORECASE)
# Cloud and forge keys, chat tokens, payment keys and age identities, each to its end.
ISSUED: Final = "|".join(
    (
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"\bgh[pousr]_[A-Za-z0-9]{36,}",
        r"\bgithub_pat_\w{22,}",
        r"\bglpat-[\w-]{20,}",
        r"\bxox[abprs]-[\w-]{10,}",
        r"\bAIza[\w-]{35}",
        r"\b[sr]k_live_\w{16,}",
        r"\bAGE-SECRET-KEY-1[0-9A-Z]{20,}",
    )
)
