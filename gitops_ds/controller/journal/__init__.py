"""Decisions and their observations as lines on disk, and their replay."""
