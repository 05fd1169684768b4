"""Models behind HTTP.

    requests ──▶ HTTP ──▶ engine ──▶ queue ──▶ worker processes ──▶ answers
                                     bounded    torch, models

listener.py     the address, the event loop, and a stop in order
connection.py   limits and deadlines of a connection
policies.py     who may ask: host names, origins, keys, content types
keys.py         the keys of clients
app.py          the routes, and what every request passes
openai_routes.py the same for clients of OpenAI
requests.py     the fields of requests, typed; openapi.py describes them
outputs.py      the fields of answers, for the same description
bodies.py       strict JSON
answers.py      refusals as JSON
traffic.py      counts, and the log
engine.py       the models and their workers, as the HTTP side sees them; no torch
calls.py        a request in the engine: items, checked options, answers
dispatch.py     the queue, and the batches that are made of it
refusals.py     why a request is not answered
messages.py     what the listener and its workers say to each other
link.py         a worker as the listener sees it
forkserver.py   starts workers in milliseconds
worker.py       a process with the models
served.py       a model or an index in a worker, and its answers as plain data
swap.py         a new version of a folder takes the place of the old one
watch.py        whether a served folder has changed
ray.py          the same models on a Ray cluster
"""
