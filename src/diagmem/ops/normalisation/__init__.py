"""Operations that look at all numbers along the last axis, then write them anew."""
