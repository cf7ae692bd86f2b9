"""What users see of a staged rollout: its progress, its time, its halts. No view decides."""
