"""The command line: `dsrd demo | data | models | train | evaluate | predict | bench`.

Commands import what they need when they run: torch alone takes seconds, and `--help` or a typing error should not.
"""

from dsrd.cli.main import main

__all__ = ["main"]
