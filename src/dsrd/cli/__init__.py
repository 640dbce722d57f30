"""The command line: `dsrd demo | data | models | train | evaluate | predict | ...`.

Commands import what they need when they run: torch takes seconds to load, `--help` and typing errors should not.
"""

from dsrd.cli.main import main

__all__ = ["main"]
