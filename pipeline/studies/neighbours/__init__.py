"""Title queries and textual neighbours (Singh & Singh 2022): how encoders place altered texts of a paper."""
