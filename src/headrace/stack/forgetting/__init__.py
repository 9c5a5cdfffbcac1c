"""What `headrace forget` does to a stack: `place.py` the contract of a place, and a file for each kind of them;
`running.py` goes through all of them, to forget or to verify.
"""
