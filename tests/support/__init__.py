"""Helpers that several test files share; fixtures are in the conftest files."""
