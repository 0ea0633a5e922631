"""Random models, plans and texts, and the same spoiled: what `tools/fuzz` tries by the hundred thousand, and tests by
the handful.

Each way is a function `faults` from seeds to what went wrong; it counts what it has done. Anything but a right result
or a refusal in one line is wrong.
"""
