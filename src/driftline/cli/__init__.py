"""The command line: `driftline.cli.main` is its entry point, and no package imports it."""

__all__ = ["start"]


def start() -> None:
    """Run the command line, for `python -m driftline`."""
    from driftline.cli.main import main

    main()
