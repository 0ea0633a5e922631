"""Windows that slide over an image and keep one number of each channel."""
