"""Decisions as lines on disk, with all that was seen, and taken again."""
