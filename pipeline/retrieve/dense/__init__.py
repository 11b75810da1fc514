"""What the exact pass over vectors is made of: frame, products, sieves, reservoirs, canonical scores."""
