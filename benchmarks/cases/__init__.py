"""One module per subject, each with `run(full) -> list[Row]`."""
