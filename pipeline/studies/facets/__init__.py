"""Faceted query by example (Mysore et al. 2021): judged pools, systems, agreement, pools of a new collection."""
