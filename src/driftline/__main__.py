"""`python -m driftline` is the command line."""

from driftline.cli import start

if __name__ == "__main__":
    start()
