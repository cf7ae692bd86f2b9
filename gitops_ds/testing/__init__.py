"""A Kubernetes cluster in the process (`simulator`), for the demo and the tests."""
