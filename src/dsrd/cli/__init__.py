"""The command line: `dsrd demo | data | models | train | evaluate | predict | bench`."""

from dsrd.cli.main import main

__all__ = ["main"]
