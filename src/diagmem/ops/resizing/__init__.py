"""Images that are resampled."""
