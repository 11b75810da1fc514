"""Large-scale retrieval evaluation of scientific article encoders (Medić & Šnajder 2022, MDCR)."""

__version__ = "0.1.0"
