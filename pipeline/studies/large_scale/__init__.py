"""Large-scale evaluation (Medić & Šnajder 2022, section 3)."""
