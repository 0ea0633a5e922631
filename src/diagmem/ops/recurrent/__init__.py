"""Operations that remember: what they write into variables is read at the next run."""
