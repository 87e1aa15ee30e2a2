// SPDX-License-Identifier: Apache-2.0
// Text token by token.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "fewbit/model.hpp"

namespace fewbit {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool is_eos(const ModelConfig& config, std::int32_t id) {
  return std::find(config.eos_token_ids.begin(), config.eos_token_ids.end(), id) !=
         config.eos_token_ids.end();
}

Result<void> check_request(const Model& model, std::span<const std::int32_t> prompt,
                           const GenerateOptions& options) {
  const auto refuse = [](std::string what) {
    return Error{ErrorCode::invalid_argument, std::move(what), ""};
  };
  const std::int64_t context = model.config().max_positions;
  if (prompt.empty()) return refuse("the prompt is empty, expected at least one token");
  if (static_cast<std::int64_t>(prompt.size()) > context) {
    return refuse(fmt::format("the prompt has {} tokens, the context of the model {}",
                              prompt.size(), context));
  }
  if (options.max_new_tokens < 0) {
    return refuse(fmt::format("max_new_tokens is {}, expected 0 or more", options.max_new_tokens));
  }
  return {};
}

}  // namespace

// Stops at max_new_tokens, at an end-of-sequence id (which is kept), when on_token says so, or when
// the context is full.
Result<Generation> generate(const Model& model, std::span<const std::int32_t> prompt,
                            const GenerateOptions& options) {
  FEWBIT_TRY(check_request(model, prompt, options));
  FEWBIT_TRY(Sampler sampler, Sampler::create(options.sampling));
  const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
  const std::int64_t room = model.config().max_positions - prompt_tokens;
  // The last new token needs no position of its own.
  const std::int64_t new_tokens = std::min(options.max_new_tokens, room + 1);
  FEWBIT_TRY(Sequence sequence,
             model.new_sequence(prompt_tokens + std::max(new_tokens - 1, std::int64_t{0})));
  Generation result;
  result.ids.assign(prompt.begin(), prompt.end());
  result.prompt_tokens = prompt_tokens;
  auto start = Clock::now();
  FEWBIT_TRY(auto logits, model.forward(sequence, prompt, Model::Logits::last_only));
  result.prefill_seconds = seconds_since(start);
  start = Clock::now();
  for (std::int64_t made = 0; made < new_tokens; ++made) {
    if (made > 0) {
      const std::span<const std::int32_t> last(&result.ids.back(), 1);
      FEWBIT_TRY(logits, model.forward(sequence, last, Model::Logits::last_only));
    }
    FEWBIT_TRY(const std::int32_t id, sampler.sample(logits));
    result.ids.push_back(id);
    result.stopped_by_eos = is_eos(model.config(), id);
    const bool wanted = !options.on_token || options.on_token(id);
    if (result.stopped_by_eos || !wanted) break;
  }
  result.decode_seconds = seconds_since(start);
  return result;
}

}  // namespace fewbit
