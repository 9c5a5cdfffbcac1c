"""Contract suites: what every implementation of a seam must do, written once as tests.

Derive a class from one of them, say how to make what is tested, and pytest runs the suite on it.
"""
