"""The redaction of everything that is shown."""
