"""Templates in ConfigMaps and Secrets of the cluster, applied by the loop that follows Git."""
