"""The redaction of every output: plan, report, comment, page, log, events, notifications, support
dump. Pure.

`patterns` has the marks of a secret. `texts` hides it in a string, `objects` in an object or a
field, `report` in findings, `events` in events of the service, and `support_dump` in every part of
a support dump.
"""
