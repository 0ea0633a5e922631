"""How several cores share a run."""
