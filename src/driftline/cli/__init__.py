"""The command line: `driftline.cli.main` is its entry point, and no package imports it."""

__all__: list[str] = []
