"""From which number of candidates on dense retrieval overtakes sparse."""
