"""Records as lines on disk, and the replay of decisions. Nothing here yet: records go to the log and the metrics."""
