"""Bundles and files against schemas and rules: findings at the line that must change."""
