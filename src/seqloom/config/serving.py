"""Settings of `seqloom serve`: where it listens, its workers, and its limits. Every limit has a default."""

from typing import Annotated, Literal

from msgspec import Meta

from seqloom.config.base import Config, quoted
from seqloom.config.data import Name, NameList
from seqloom.config.options import MACHINE, Flag
from seqloom.errors import ConfigError

# Groups of options in the help.
SERVER, LIMITS, ACCESS = "Server", "Limits", "Access"

ServingDevice = Literal["auto", "cpu", "cuda", "mps"]
Port = Annotated[int, Meta(ge=0, le=65_535, examples=[8000])]
WorkerCount = Annotated[int, Meta(ge=1, le=256, examples=[1])]
BatchItems = Annotated[int, Meta(ge=1, le=4_096, examples=[16])]
Waiting = Annotated[int, Meta(ge=0, le=1_000_000, examples=[48])]
Seconds = Annotated[float, Meta(ge=0.001, le=86_400.0, examples=[1.0])]
Connections = Annotated[int, Meta(ge=1, le=1_000_000, examples=[1024])]
BodyBytes = Annotated[int, Meta(ge=1_024, le=2**30, examples=[2**20])]
Items = Annotated[int, Meta(ge=1, le=100_000, examples=[32])]
Characters = Annotated[int, Meta(ge=1, le=2**30, examples=[32_768])]
Tokens = Annotated[int, Meta(ge=1, le=2**30, examples=[4_096])]
NewTokens = Annotated[int, Meta(ge=1, le=2**20, examples=[1_024])]
Samples = Annotated[int, Meta(ge=1, le=1_024, examples=[16])]

MAX_HITS = 100  # documents of a query
MAX_ALL_HITS = 1_000  # documents of all queries of a request together
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ServingConfig(Config, tag="serving", kw_only=True):
    """How models are served over HTTP."""

    host: Annotated[
        Name, Flag("Address to listen on; any but loopback needs --keys (default: 127.0.0.1).", "ADDRESS", SERVER)
    ] = "127.0.0.1"
    port: Annotated[Port, Flag("Port to listen on; 0 chooses a free one (default: 8000).", "NUMBER", SERVER)] = 8_000
    workers: Annotated[
        WorkerCount,
        Flag("Number of processes with the models; each uses one GPU if there are several (default: 1).", "N", MACHINE),
    ] = 1
    device: Annotated[
        ServingDevice, Flag("Device of the models: {names} (default: auto, a GPU if there is one).", "NAME", MACHINE)
    ] = "auto"
    max_batch: Annotated[
        BatchItems,
        Flag("Most items that a worker computes together; waiting requests share a batch (default: 16).", "N", LIMITS),
    ] = 16
    max_waiting: Annotated[
        Waiting, Flag("Most requests that wait for a worker; the next one gets 429 (default: 48).", "COUNT", LIMITS)
    ] = 48
    queue_seconds: Annotated[
        Seconds, Flag("Longest wait of a request for a worker; then it gets 503 (default: 1).", "SECONDS", LIMITS)
    ] = 1.0
    total_seconds: Annotated[
        Seconds,
        Flag("Longest time from the end of a request to its answer; then it gets 504 (default: 30).", "S", LIMITS),
    ] = 30.0
    header_seconds: Annotated[
        Seconds, Flag("Longest time for the headers of a request; then it gets 408 (default: 5).", "SECONDS", LIMITS)
    ] = 5.0
    body_seconds: Annotated[
        Seconds, Flag("Longest time for the body of a request; then it gets 408 (default: 10).", "SECONDS", LIMITS)
    ] = 10.0
    keep_alive_seconds: Annotated[
        Seconds, Flag("How long an idle connection stays open (default: 10).", "SECONDS", LIMITS)
    ] = 10.0
    drain_seconds: Annotated[
        Seconds, Flag("How long running requests may take when the server stops (default: 10).", "SECONDS", LIMITS)
    ] = 10.0
    max_connections: Annotated[
        Connections, Flag("Most open connections; the next one gets 503 (default: 1024).", "COUNT", LIMITS)
    ] = 1_024
    max_body_bytes: Annotated[
        BodyBytes, Flag("Most bytes of a request body; more gets 413 (default: 1048576).", "BYTES", LIMITS)
    ] = 1 << 20
    max_items: Annotated[
        Items, Flag("Most texts or other inputs of a request; more gets 422 (default: 32).", "COUNT", LIMITS)
    ] = 32
    max_embedding_items: Annotated[
        Items, Flag("The same for /v1/embeddings, whose clients send more (default: 256).", "COUNT", LIMITS)
    ] = 256
    max_characters: Annotated[
        Characters, Flag("Most characters of a text; more gets 422 (default: 32768).", "COUNT", LIMITS)
    ] = 32_768
    max_tokens: Annotated[
        Tokens,
        Flag("Most tokens or steps that a model reads of a text or input; more gets 422 (default: 4096).", "N", LIMITS),
    ] = 4_096
    max_new_tokens: Annotated[
        NewTokens, Flag("Most tokens that a request may ask to generate (default: 1024).", "COUNT", LIMITS)
    ] = 1_024
    max_samples: Annotated[Samples, Flag("Most samples or beams of a text (default: 16).", "COUNT", LIMITS)] = 16
    max_beam_tokens: Annotated[
        NewTokens,
        Flag("Most tokens of a text in all its samples or beams; more gets 422 (default: 2048).", "COUNT", LIMITS),
    ] = 2_048
    keys: Annotated[
        Name | None,
        Flag(
            "File with one client per line, name:key, readable only by its owner (default: no keys, only on loopback).",
            "FILE",
            ACCESS,
        ),
    ] = None
    hosts: Annotated[
        NameList,
        Flag(
            "Host name that clients may use in addresses, needs --keys; can be repeated (default: names of loopback).",
            "NAME",
            ACCESS,
        ),
    ] = ()

    def check(self) -> None:
        if self.host not in LOOPBACK and self.keys is None:
            raise ConfigError(
                f"--host {self.host} can be reached from other machines, but there are no keys",
                fix="give --keys FILE, or leave out --host",
            )
        public = [name for name in self.hosts if name.lower() not in (*LOOPBACK, "[::1]")]
        if public and self.keys is None:
            raise ConfigError(
                f"--hosts {quoted(public[0])} is a name for clients of other machines, but there are no keys",
                fix="give --keys FILE, or leave out --hosts",
            )
        for flag, one in (("--max-new-tokens", self.max_new_tokens), ("--max-samples", self.max_samples)):
            if one > self.max_beam_tokens:
                raise ConfigError(
                    f"{flag} {one} is more than --max-beam-tokens {self.max_beam_tokens}",
                    fix="raise --max-beam-tokens",
                )
