"""The paper, reproduced: every table and figure of "Diagonal Memory Optimisation for Machine Learning on
Micro-controllers" (Blacker, Bridges, Hadfield), published beside computed, and what is wrong in it."""
