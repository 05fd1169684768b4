"""Models behind HTTP.

    requests ──▶ HTTP ──▶ engine ──▶ queue ──▶ worker processes ──▶ answers
                                     bounded    torch, models

engine.py       the queue and its workers, as the HTTP side sees them; no torch
calls.py        a request in the engine: items, checked options, answers
refusals.py     why a request is not answered
messages.py     what the listener and its workers say to each other
link.py         a worker as the listener sees it
forkserver.py   starts workers in milliseconds
worker.py       a process with the models
served.py       a model or an index in a worker, and its answers as plain data
watch.py        whether a served folder has changed
ray.py          the same models on a Ray cluster
"""
