// SPDX-License-Identifier: Apache-2.0
// Perplexity in windows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

}  // namespace

Result<Evaluation> evaluate(const Model& model, std::span<const std::int32_t> ids,
                            std::int64_t window, const ProgressFn& progress) {
  const auto count = static_cast<std::int64_t>(ids.size());
  if (window < 1 || count < window + 1) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a window of {} tokens needs a text of at least {}, found {}", window,
                             window + 1, count),
                 ""};
  }
  const std::int64_t vocab = model.config().vocab_size;
  const std::int64_t step = std::clamp(max_logits / vocab, std::int64_t{1}, window);
  FEWBIT_TRY(Sequence sequence, model.new_sequence(window));
  Evaluation result;
  result.windows = (count - 1) / window;
  std::vector<double> losses(to_size(step));
  double total = 0;
  for (std::int64_t w = 0; w < result.windows; ++w) {
    sequence.clear();
    for (std::int64_t at = 0; at < window; at += step) {
      const std::int64_t tokens = std::min(step, window - at);
      const auto inputs = ids.subspan(to_size(w * window + at), to_size(tokens));
      FEWBIT_TRY(const auto logits, model.forward(sequence, inputs, Model::Logits::all));
      for_each_row(model.executor(), tokens, [&](std::int64_t row) {
        const std::span<const float> all = logits;
        losses[to_size(row)] =
            negative_log_likelihood(all.subspan(to_size(row * vocab), to_size(vocab)),
                                    ids[to_size(w * window + at + row + 1)]);
      });
      for (std::int64_t row = 0; row < tokens; ++row) total += losses[to_size(row)];
      result.tokens_scored += tokens;
      if (!std::isfinite(total)) {
        return Error{ErrorCode::corrupt,
                     fmt::format("the loss is not finite in tokens {} to {}", w * window + at,
                                 w * window + at + tokens - 1),
                     "evaluation"};
      }
      if (progress && !progress(static_cast<std::uint64_t>(result.tokens_scored),
                                static_cast<std::uint64_t>(result.windows * window))) {
        return Error{ErrorCode::cancelled,
                     fmt::format("stopped after {} of {} tokens", result.tokens_scored,
                                 result.windows * window),
                     ""};
      }
    }
  }
  result.mean_nll = total / static_cast<double>(result.tokens_scored);
  result.perplexity = std::exp(result.mean_nll);
  return result;
}

}  // namespace fewbit
