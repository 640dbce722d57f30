"""`python -m dsrd` is `dsrd`."""

from dsrd.cli import main

main()
