"""Channels that need not exist. A channel is one index of a tensor's last axis.

`ranges` says what values each can have, `keeping` which are needed, `narrowing` makes the graph without the others.
"""
