"""Schema documents, their nodes with references folded in, and the root at which a comparison starts."""
