"""The rules of objects that the API server refuses, one module for each part of an object.

Each rule repeats a validation of Kubernetes, named in its docstring, so that a pull request shows
the refusal before an apply does. `make truth` compares them with a real API server.
"""
