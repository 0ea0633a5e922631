"""Filters that slide over an image."""
