"""What a network is, and in what order it runs."""
