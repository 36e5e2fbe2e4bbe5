"""The declared end-to-end pipeline: stages, resume, run records."""
