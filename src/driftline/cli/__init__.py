"""The command line: one file per command group, exit codes in `outcome.py`."""
