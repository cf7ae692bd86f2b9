"""Tests of the decisions about startup taints."""
