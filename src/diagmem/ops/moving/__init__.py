"""Operations that only move elements, or only give them another shape."""
