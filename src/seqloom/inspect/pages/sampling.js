"use strict";
// What seqloom.decoding.decode.filtered does, in the browser: the tests hold one against the other.
// `logs` are the log-probabilities of all tokens that can be said, the likeliest first: none is cut off before the
// sums are made, or the numbers of the filters would not be the model's.
function softmax(scores) {
  const most = scores[0];
  const parts = scores.map(score => Math.exp(score - most));
  const total = parts.reduce((sum, part) => sum + part, 0);
  return parts.map(part => part / total);
}

// The probabilities that tokens are drawn with; how = {temperature, top_k, top_p, min_p}; top_k = 0 is all of them.
function drawnWith(logs, how) {
  let kept = Array.from(logs, log => log / how.temperature);
  if (how.top_k > 0) kept = kept.slice(0, how.top_k);
  if (how.top_p < 1) {
    let before = 0;
    const inside = softmax(kept).map(chance => { const reached = before; before += chance; return reached < how.top_p; });
    kept = kept.filter((_, at) => at === 0 || inside[at]);
  }
  if (how.min_p > 0) {
    const chances = softmax(kept);
    kept = kept.filter((_, at) => at === 0 || chances[at] >= how.min_p * chances[0]);
  }
  const chances = softmax(kept);
  return Array.from(logs, (_, at) => at < chances.length ? chances[at] : 0);
}
