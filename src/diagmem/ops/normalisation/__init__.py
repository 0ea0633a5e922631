"""Operations that normalise each row along the last axis."""
