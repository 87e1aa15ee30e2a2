// SPDX-License-Identifier: Apache-2.0
// Names of what a problem may ask for, and back.
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/ascii.hpp"
#include "core/nearest.hpp"
#include "core/quote.hpp"
#include "fewbit/selection.hpp"

namespace fewbit {
namespace {

template <class T>
using Named = std::pair<T, const char*>;

constexpr std::array<Named<TokenExchange>, 7> exchanges = {{
    {TokenExchange::none, "none"},
    {TokenExchange::allgather, "allgather"},
    {TokenExchange::deepep_high_throughput, "deepep_high_throughput"},
    {TokenExchange::deepep_low_latency, "deepep_low_latency"},
    {TokenExchange::nixl, "nixl"},
    {TokenExchange::flashinfer_one_sided, "flashinfer_one_sided"},
    {TokenExchange::flashinfer_two_sided, "flashinfer_two_sided"},
}};

constexpr std::array<Named<Routing>, 9> routings = {{
    {Routing::softmax, "softmax"},
    {Routing::renormalize, "renormalize"},
    {Routing::deepseek_v3, "deepseek_v3"},
    {Routing::llama4, "llama4"},
    {Routing::sigmoid, "sigmoid"},
    {Routing::sigmoid_renormalize, "sigmoid_renormalize"},
    {Routing::minimax2, "minimax2"},
    {Routing::sqrt_softplus, "sqrt_softplus"},
    {Routing::other, "other"},
}};

constexpr std::array<Named<Engine>, 4> engines = {{
    {Engine::fewbit, "fewbit"},
    {Engine::vllm, "vllm"},
    {Engine::sglang, "sglang"},
    {Engine::flashinfer, "flashinfer"},
}};

template <class T>
const char* name_of(std::span<const Named<T>> list, T value) {
  for (const Named<T>& named : list) {
    if (named.first == value) return named.second;
  }
  return "unknown";
}

template <class T>
Result<T> from_name(std::span<const Named<T>> list, std::string_view name, const char* what) {
  std::string known;
  std::vector<std::string> names;
  names.reserve(list.size());
  for (const Named<T>& named : list) {
    if (lower_ascii(name) == named.second) return named.first;
    names.emplace_back(named.second);
    known += (known.empty() ? "" : ", ") + names.back();
  }
  return Error{ErrorCode::invalid_argument,
               std::string("unknown ") + what + " " + quote(name) + ", expected one of " + known +
                   did_you_mean(name, names),
               ""};
}

}  // namespace

const char* exchange_name(TokenExchange exchange) {
  return name_of<TokenExchange>(exchanges, exchange);
}
Result<TokenExchange> exchange_from_name(std::string_view name) {
  return from_name<TokenExchange>(exchanges, name, "token exchange");
}
const char* routing_name(Routing routing) { return name_of<Routing>(routings, routing); }
Result<Routing> routing_from_name(std::string_view name) {
  return from_name<Routing>(routings, name, "routing");
}
Result<Engine> engine_from_name(std::string_view name) {
  return from_name<Engine>(engines, name, "engine");
}
const char* engine_name(Engine engine) {
  switch (engine) {
    case Engine::fewbit:
      return "fewbit";
    case Engine::vllm:
      return "vLLM";
    case Engine::sglang:
      return "SGLang";
    case Engine::flashinfer:
      return "FlashInfer";
  }
  return "unknown";
}

}  // namespace fewbit
