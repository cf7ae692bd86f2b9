"""The options that several commands have, each declared once, with completion and environment
variable.

The options of one command are in its own module.
"""
