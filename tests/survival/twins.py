"""Guards taken away: each function breaks one of them in this process, and the tests must see it."""
TWINS = {}
