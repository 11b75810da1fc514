"""BM25 with Lucene's scores: the analyzer, the forward index of a corpus, search, and the grid of a tuning."""
