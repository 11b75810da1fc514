"""The pool size from which on dense retrieval overtakes sparse retrieval."""
