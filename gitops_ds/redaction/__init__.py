"""One redaction for all that is shown: plan, report, comment, page, log, events, notifications,
support dump. Pure.

`patterns` says what gives a secret away, `texts` hides it in a text, `redact` in an object or a
field, `secrets` in findings, `records` in facts of the service, `veil` in everything that a support
dump collects.
"""
