"""The stages of a pipeline: what each reads, needs and writes."""
