"""In which memory what lies: pools, traffic, and what the caller holds."""
