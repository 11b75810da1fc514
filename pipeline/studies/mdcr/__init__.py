"""Building and scoring the MDCR benchmark (Medić & Šnajder 2022, section 4)."""
