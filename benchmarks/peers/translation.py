"""Greedy and beam-5 translation at base size (6+6 layers, d=512, V=16k) against transformers' generate, batch 1 and 32.

Weights are random and the end of text is never generated, so both sides write the same number of tokens. Seqloom runs
in float32 and in int8. CTranslate2 in int8, if it is installed, has the weights of the peer.
"""

import tempfile
from collections.abc import Callable

import torch
from benchmarks.peers.harness import installed, side_by_side, table
from torch import nn
from transformers import MarianConfig, MarianMTModel

from seqloom import recipes
from seqloom.config.decoding import BeamConfig, GreedyConfig
from seqloom.config.inputs import TokensConfig
from seqloom.decoding.answers import NEVER
from seqloom.decoding.decode import write
from seqloom.nn.int8 import quantize
from seqloom.nn.types import Padded
from seqloom.text.special_tokens import BEGIN, COUNT, END

WIDTH, LAYERS, HEADS, VOCABULARY, SOURCE = 512, 6, 8, 16_000, 24
NEW = {1: 48, 32: 12}  # tokens, by batch size
BEAMS = (1, 5)


def theirs() -> MarianMTModel:
    """Return Marian at this size."""
    size = {"d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS}
    size |= {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    size |= {"encoder_ffn_dim": 4 * WIDTH, "decoder_ffn_dim": 4 * WIDTH, "vocab_size": VOCABULARY}
    tokens = {"pad_token_id": 0, "eos_token_id": END, "bos_token_id": BEGIN, "decoder_start_token_id": BEGIN}
    return MarianMTModel(MarianConfig(**size, **tokens, max_position_embeddings=256, forced_eos_token_id=None)).eval()


def ours(model: nn.Module, source: torch.Tensor, new: int, beam: int) -> Callable[[], object]:
    """Return a function that translates with Seqloom."""
    how = GreedyConfig() if beam == 1 else BeamConfig(beam_size=beam)
    prompt = Padded.of(torch.full((len(source), 1), BEGIN))
    most = torch.full((len(source),), new)

    @torch.no_grad()
    def run() -> object:
        state = model.initial_state(Padded.of(source))
        return write(model, state, prompt, most, how, never=(*NEVER, END))

    return run


def converted(peer: MarianMTModel, folder: str) -> object:
    """Return the peer as a model of CTranslate2 in int8."""
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    spec = MarianMTLoader().get_model_spec(peer)
    spec.config.unk_token = spec.config.bos_token = spec.config.decoder_start_token = str(BEGIN)
    spec.config.eos_token = str(END)
    spec.config.add_source_eos = spec.config.add_source_bos = False
    names = [str(number) for number in range(VOCABULARY - 1)]  # the converter leaves the last one out
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.validate()
    spec.optimize(quantization="int8")
    spec.save(folder)
    return ctranslate2.Translator(folder, device="cpu", intra_threads=torch.get_num_threads())


def main() -> None:
    """Print a table for each batch and beam size."""
    torch.manual_seed(0)
    peer = theirs()
    config = recipes.translator(
        "transformer", source=TokensConfig(vocab_size=VOCABULARY), target_vocab_size=VOCABULARY, size="base"
    )
    exact, small = config.build().eval(), config.build().eval()
    small.load_state_dict(exact.state_dict())
    quantize(small)
    other = converted(peer, tempfile.mkdtemp()) if installed("ctranslate2") else None
    for rows, new in NEW.items():
        source = torch.randint(COUNT, VOCABULARY - 1, (rows, SOURCE))
        for beam in BEAMS:

            def generate(source: torch.Tensor = source, new: int = new, beam: int = beam) -> object:
                settings = {"max_new_tokens": new, "min_new_tokens": new, "num_beams": beam, "do_sample": False}
                with torch.no_grad():
                    return peer.generate(input_ids=source, **settings)

            runs: dict[str, Callable[[], object]] = {
                "transformers generate, float32": generate,
                "seqloom, float32": ours(exact, source, new, beam),
                "seqloom, int8": ours(small, source, new, beam),
            }
            if other is not None:
                words = [[str(token) for token in row] for row in source.tolist()]
                lengths = {"max_decoding_length": new, "min_decoding_length": new, "beam_size": beam}
                runs["CTranslate2, int8"] = lambda words=words, lengths=lengths: other.translate_batch(words, **lengths)
            title = f"translation, base size, batch {rows}, beam {beam}, {new} new tokens"
            table(title, side_by_side(runs, 5), unit="tokens", work=rows * new)


if __name__ == "__main__":
    main()
