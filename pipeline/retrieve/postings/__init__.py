"""BM25 by postings: terms of papers, pools of them, search, and the grid of a tuning."""
