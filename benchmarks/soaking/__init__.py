"""The parts of `soak.py`: a server process, clients that load it, faults, and what is checked."""
