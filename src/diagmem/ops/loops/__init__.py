"""Loops that many kinds share: what they touch, the closed form of their separation, and what is common in C."""
