"""Random bytes through everything that reads a repository: `make fuzz`, or one target for a time
of your choice:

python -m tests.fuzz repository -max_total_time=3600
"""
