// SPDX-License-Identifier: Apache-2.0
// Perplexity in windows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "fewbit/model.hpp"
#include "model/element.hpp"
#include "model/row_tasks.hpp"

namespace fewbit {
namespace {

// Logits of one call are bounded, whatever the vocabulary.
constexpr std::int64_t max_logits = std::int64_t{1} << 24;

// -log softmax(logits)[target], in double.
double negative_log_likelihood(std::span<const float> logits, std::int32_t target) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  return std::log(sum) + largest - double{logits[static_cast<std::size_t>(target)]};
}

// Summed loss of the inputs ids[begin, begin + tokens), each scored on the id after it.
Result<double> score(const Model& model, Sequence& sequence, std::span<const std::int32_t> ids,
                     std::int64_t begin, std::int64_t tokens) {
  const std::size_t vocab = to_size(model.config().vocab_size);
  const auto inputs = ids.subspan(to_size(begin), to_size(tokens));
  FEWBIT_TRY(const auto logits, model.forward(sequence, inputs, Model::Logits::all));
  std::vector<double> losses(to_size(tokens));
  for_each_row(model.executor(), tokens, [&](std::int64_t row) {
    losses[to_size(row)] = negative_log_likelihood(
        std::span(logits).subspan(to_size(row) * vocab, vocab), ids[to_size(begin + row + 1)]);
  });
  const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
  if (std::isfinite(sum)) return sum;
  return Error{ErrorCode::corrupt,
               fmt::format("the loss is not finite in tokens {} to {}", begin, begin + tokens - 1),
               "evaluation"};
}

}  // namespace

Result<Evaluation> evaluate(const Model& model, std::span<const std::int32_t> ids,
                            std::int64_t window, const ProgressFn& progress) {
  const auto count = static_cast<std::int64_t>(ids.size());
  if (window < 1) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a window of {} tokens, expected at least 1", window), ""};
  }
  if (count - 1 < window) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a window of {} tokens needs a text of at least {}, found {}", window,
                             window + 1, count),
                 ""};
  }
  const std::int64_t step =
      std::clamp(max_logits / model.config().vocab_size, std::int64_t{1}, window);
  FEWBIT_TRY(Sequence sequence, model.new_sequence(window));
  Evaluation result;
  result.windows = (count - 1) / window;
  const std::int64_t total = result.windows * window;
  double loss = 0;
  while (result.tokens_scored < total) {
    const std::int64_t in_window = result.tokens_scored % window;
    if (in_window == 0) sequence.clear();
    const std::int64_t tokens = std::min(step, window - in_window);
    FEWBIT_TRY(const double sum, score(model, sequence, ids, result.tokens_scored, tokens));
    loss += sum;
    result.tokens_scored += tokens;
    if (progress && !progress(static_cast<std::uint64_t>(result.tokens_scored),
                              static_cast<std::uint64_t>(total))) {
      return Error{ErrorCode::cancelled,
                   fmt::format("stopped after {} of {} tokens", result.tokens_scored, total), ""};
    }
  }
  result.mean_nll = loss / static_cast<double>(total);
  result.perplexity = std::exp(result.mean_nll);
  return result;
}

}  // namespace fewbit
