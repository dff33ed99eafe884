"""The performance floors: interleaved pairs of two engines on equal settings."""
