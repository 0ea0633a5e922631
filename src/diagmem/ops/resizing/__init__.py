"""Images sampled anew at other places."""
