"""What commands print on a terminal beside documents: tables, and the progress of rollouts."""
