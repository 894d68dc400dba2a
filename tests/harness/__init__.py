"""Starts PostgreSQL and Howdah for the process tests, and speaks to them byte by byte.

Everything here needs only Python's standard library, so `./run` can use it as well.
"""
