"""Models behind HTTP.

    requests ──▶ app ──▶ engine ──▶ queue ──▶ worker processes ──▶ answers
                 HTTP    bounded    batches    torch, models

refusals.py   why a request is not answered
engine.py     the queue and the workers, as the HTTP side sees them; no torch
"""
