"""Operations on single elements: activations, arithmetic, conversions."""
