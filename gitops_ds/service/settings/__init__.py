"""The settings file: a tree of frozen groups, read once.

A field is declared in its group with its default and its documentation; schema and reference follow
from it.
"""
