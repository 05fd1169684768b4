"""The distribution that is shown is the one that is drawn from, in Python and in the browser."""

import json
import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from inspection_common import subject_of, task_on
from seqloom.config.decoding import SampleConfig
from seqloom.decoding.answers import NEVER, log_probabilities
from seqloom.decoding.decode import filtered
from seqloom.errors import ConfigError, DataError
from seqloom.inspect import next_tokens as next_tokens_module
from seqloom.inspect.next_tokens import next_tokens
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Subject, encoding
from seqloom.inspect.view import script
from seqloom.report.numbers import number

NODE = shutil.which("node")
GRID = [
    {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    for temperature, top_k, top_p, min_p in product((0.2, 1.0, 2.5), (0, 1, 7, 500), (0.01, 0.6, 1.0), (0.0, 0.3, 1.0))
]


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return subject_of(task_on(tmp_path_factory.mktemp("lm"), "lm"), "lstm")


@pytest.mark.parametrize("how", [{"temperature": 0.4}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.4}, {}])
def test_what_is_shown_is_what_a_sample_is_drawn_with(writer: Subject, how: dict[str, float]) -> None:
    reading = read(writer, "the cat sat on the")
    view = next_tokens(writer, reading, **how)  # type: ignore[arg-type]
    last = scores(writer, reading.inputs)[0, -1:].detach()
    drawn = filtered(log_probabilities(last, None, 1.0, NEVER), SampleConfig(**how))[0]
    told = {choice.token: choice.sampling_probability for choice in view.choices}
    assert {writer.name(at): float(drawn[at]) for at in drawn.nonzero().flatten()} == pytest.approx(
        {name: chance for name, chance in told.items() if chance > 0}, abs=1e-6
    )
    assert view.num_candidates == int((drawn > 0).sum())
    assert sum(told.values()) + view.tail.sampling_probability == pytest.approx(1, abs=1e-6)


def test_what_is_listed_and_the_tail_have_all_of_the_probability_of_the_model(
    writer: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_tokens_module, "TOP", 3)
    reading = read(writer, "the cat sat on the")
    view = next_tokens(writer, reading)
    assert sum(choice.probability for choice in view.choices) + view.tail.probability == pytest.approx(1, abs=1e-6)
    shares = scores(writer, reading.inputs)[0, -1].detach().softmax(dim=-1)
    assert view.excluded_probability == pytest.approx(float(shares[list(NEVER)].sum()), abs=1e-6)
    assert [sum(figure.data()["values"]) for figure in view.figures()[:2]] == pytest.approx([1, 1], abs=1e-6)


def test_a_text_that_is_cut_has_no_end_and_it_is_said(writer: Subject) -> None:
    short = writer._replace(encode=encoding(writer.task, 3, None, torch.device("cpu")))
    view = next_tokens(short, read(short, "the cat sat on the mat"))
    assert view.targets == ("the", "cat", "sat", "on")
    assert view.left_out == 3


def test_a_prompt_is_told_what_comes_next_and_its_perplexity_without_the_end(writer: Subject) -> None:
    view = next_tokens(writer, read(writer, "the cat sat"))
    position, _, perplexity = view.sentences()
    assert position.startswith(f"Position 3: the text ends here (<end>: rank {view.rank[3]}, ")
    assert f"the most probable next token is “{view.choices[0].token}” (" in position
    assert perplexity.endswith(f"; without <end>: {number(np.exp(view.surprisal[:3].mean()))}.")
    inside = next_tokens(writer, read(writer, "the cat sat"), at="cat").sentences()[0]
    assert inside.startswith(f"Position 2: the next token is “sat”, rank {view.rank[2]}, ")
    cut = writer._replace(encode=encoding(writer.task, 3, None, torch.device("cpu")))
    assert "end" not in " ".join(next_tokens(cut, read(cut, "the cat sat on the mat")).sentences())


def test_surprisal_entropy_and_rank_are_those_of_the_scores(writer: Subject) -> None:
    reading = read(writer, " ".join(["the cat sat on a big mat"] * 30))  # more rows than one block of them
    view = next_tokens(writer, reading)
    logs = scores(writer, reading.inputs)[0].detach().log_softmax(dim=-1)
    said = torch.tensor(reading.targets)
    loss = torch.nn.functional.nll_loss(logs, said, reduction="none")
    np.testing.assert_allclose(view.surprisal, loss, atol=1e-5)
    np.testing.assert_allclose(view.entropy, torch.distributions.Categorical(logits=logs).entropy(), atol=1e-5)
    places = logs.argsort(dim=-1, descending=True) == said[:, None]
    assert view.rank.tolist() == (places.int().argmax(dim=-1) + 1).tolist()
    assert float(view.perplexity[-1]) == pytest.approx(float(loss.mean().exp()), rel=1e-4)
    assert view.targets[:3] == ("the", "cat", "sat") and view.targets[-1] == "<end>"


def test_row_t_of_a_translation_is_the_token_that_is_said_there(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "transformer")
    view = next_tokens(subject, read(subject, "the cat sat", target="le chat assis"), at="chat")
    assert view.targets == ("le", "chat", "assis", "<end>")
    assert view.at == 1


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="node is not there to run the script of the page")
def test_the_browser_draws_as_python_does() -> None:
    """The script is run by node where there is one; a browser and node share the language."""
    logs = torch.randn(1, 200, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).mul(2).log_softmax(-1)
    ordered = logs.sort(descending=True).values
    expected = [filtered(ordered, SampleConfig(**how))[0].numpy() for how in GRID]  # type: ignore[arg-type]
    asked = {"logs": ordered[0].tolist(), "grid": GRID}
    code = script("sampling.js") + (
        "const asked = JSON.parse(require('fs').readFileSync(0));"
        "console.log(JSON.stringify(asked.grid.map(how => drawnWith(asked.logs, how))));"
    )
    done = subprocess.run([str(NODE), "-e", code], input=json.dumps(asked), capture_output=True, text=True, check=True)
    for how, here, there in zip(GRID, expected, json.loads(done.stdout), strict=True):
        np.testing.assert_allclose(there, here, atol=1e-6, err_msg=str(how))


def test_the_page_has_every_log_probability_and_nothing_from_outside(writer: Subject) -> None:
    view = next_tokens(writer, read(writer, "the cat"))
    page = view.html()
    assert len(view.log_probs) == len(writer.model.head.bias) - len(NEVER)  # type: ignore[union-attr, arg-type]
    assert 'id="temperature"' in page and "script-src &#x27;sha256-" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


@pytest.mark.parametrize(("words", "kinds"), [(6, "strip"), (600, "line")])
def test_what_is_drawn_goes_with_the_length(writer: Subject, words: int, kinds: str) -> None:
    view = next_tokens(writer, read(writer, " ".join(["cat"] * words)))
    assert [figure.kind for figure in view.figures()][2] == kinds
    assert len(json.dumps(view.to_json(), allow_nan=False)) < 200_000


def test_what_has_no_next_token_is_refused(writer: Subject, tmp_path: Path) -> None:
    other = subject_of(task_on(tmp_path, "classify"), "bag")
    with pytest.raises(ConfigError, match="does not predict next tokens"):
        next_tokens(other, read(other, "the cat"))
    reading = read(writer, "the cat sat on the")
    with pytest.raises(DataError, match="occurs 2 times, at 1, 5"):
        next_tokens(writer, reading, at="the")
    with pytest.raises(DataError, match="there is no token 9"):
        next_tokens(writer, reading, at=9)
    with pytest.raises(ConfigError):
        next_tokens(writer, reading, temperature=0.0)
