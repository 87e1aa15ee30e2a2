// SPDX-License-Identifier: Apache-2.0
#include "select/problem_list.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <sstream>

#include "canonical/gguf_exact.hpp"
#include "checkpoint/gguf_types.hpp"
#include "core/ascii.hpp"
#include "core/nearest.hpp"
#include "core/quote.hpp"

namespace fewbit {
namespace {

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> words;
  while (true) {
    const std::size_t end = text.find(at);
    words.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return words;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

Error unknown_scheme(std::string_view name, std::string_view word) {
  return Error{ErrorCode::invalid_argument,
               fmt::format("scheme {}: {} means nothing", quote(name), quote(word)), ""};
}

Scheme scaled(Producer producer, DType weight, ScaleSpec scale, std::optional<DType> activation) {
  Scheme scheme;
  scheme.producer = producer;
  scheme.weight = weight;
  scheme.scale = scale;
  scheme.activation = activation;
  return scheme;
}

std::optional<Scheme> float_scheme(std::string_view name) {
  const ScaleSpec e8m0{.dtype = DType::f8_e8m0, .granularity = {1, 32}};
  const auto fp8 = [](Granularity grid) {
    return scaled(Producer::fp8, DType::f8_e4m3, {.dtype = DType::f32, .granularity = grid},
                  DType::f8_e4m3);
  };
  Scheme nvfp4 =
      nvfp4_scheme(name == "ct-nvfp4" ? Producer::compressed_tensors : Producer::modelopt);
  if (name == "bf16") return plain_scheme(DType::bf16);
  if (name == "f32") return plain_scheme(DType::f32);
  if (name == "f16") return plain_scheme(DType::f16);
  if (name == "nvfp4-w4a16") return nvfp4;
  nvfp4.activation = DType::f4_e2m1;
  if (name == "nvfp4" || name == "ct-nvfp4") return nvfp4;
  if (name == "mxfp4") return scaled(Producer::mxfp4, DType::f4_e2m1, e8m0, std::nullopt);
  if (name == "mxfp4-a8") return scaled(Producer::mxfp4, DType::f4_e2m1, e8m0, DType::f8_e4m3);
  if (name == "nf3") {
    return scaled(Producer::nf3, DType::nf3, {.dtype = DType::f8_e4m3, .granularity = {1, 32}},
                  std::nullopt);
  }
  if (name == "mxfp8") return scaled(Producer::fp8, DType::f8_e4m3, e8m0, DType::f8_e4m3);
  if (name == "fp8-tensor") return fp8({0, 0});
  if (name == "fp8-channel") return fp8({1, 0});
  if (name == "fp8-block") return fp8({128, 128});
  return std::nullopt;
}

Result<void> apply_word(Scheme& scheme, std::string_view name, std::string_view word) {
  if (word == "int4") return {};
  if (word == "int8") {
    scheme.weight = DType::u8;
    scheme.zero_point = 128;
  } else if (word == "channel") {
    scheme.scale->granularity.cols = 0;
  } else if (word == "asym") {
    scheme.zero_points = true;
  } else if (word == "actorder") {
    scheme.act_order = ActOrder::group;
  } else if (word == "static") {
    scheme.act_order = ActOrder::static_groups;
  } else if (const auto group = number(word.substr(word.starts_with('g') ? 1 : word.size()))) {
    scheme.scale->granularity.cols = *group;
  } else {
    return unknown_scheme(name, word);
  }
  return {};
}

Result<Scheme> integer_scheme(std::string_view name) {
  const std::vector<std::string> words = split(name, '-');
  Scheme scheme = scaled(Producer::gptq, DType::u4, {.dtype = DType::f16, .granularity = {1, 128}},
                         std::nullopt);
  scheme.zero_point = 8;
  scheme.packing = Packing::words_k_minus;
  if (words[0] == "awq") {
    scheme.producer = Producer::awq;
    scheme.packing = Packing::words_n;
    scheme.zero_points = true;
  } else if (words[0] == "ct") {
    scheme.producer = Producer::compressed_tensors;
    scheme.packing = Packing::words_row;
  } else if (words[0] != "gptq") {
    return unknown_scheme(name, words[0]);
  }
  for (std::size_t i = 1; i < words.size(); ++i) FEWBIT_TRY(apply_word(scheme, name, words[i]));
  if (scheme.zero_points) scheme.zero_point = 0;
  return scheme;
}

// "gguf-q2_0": blocks by ggml's name, with codes and scales apart where that changes nothing.
Result<Scheme> block_scheme(std::string_view name) {
  const std::string_view word = name.substr(std::string_view("gguf-").size());
  for (const GgufType& type : gguf_types()) {
    if (lower_ascii(type.name) != word || type.dtype || type.elements == 0) continue;
    Scheme scheme;
    scheme.producer = Producer::gguf;
    scheme.weight = DType::u8;
    scheme.packing = Packing::ggml;
    scheme.ggml_type = type.id;
    return gguf_exact_scheme(scheme).value_or(scheme);
  }
  return unknown_scheme(name, word);
}

// One line's words in order.
class Line {
 public:
  Line(std::string_view text, std::string where)
      : words_(std::string(text)), where_(std::move(where)) {}

  Error wrong(const std::string& what) const { return {ErrorCode::corrupt, what, where_}; }
  bool next(std::string& word) { return static_cast<bool>(words_ >> word); }
  Result<std::string> text(const char* what) {
    std::string word;
    if (next(word)) return word;
    return wrong(
        fmt::format("no {}, expected NAME hidden intermediate experts top_k activation "
                    "routing schemes",
                    what));
  }
  Result<std::int64_t> size(const char* what) {
    FEWBIT_TRY(const std::string word, text(what));
    const auto value = number(word);
    if (value && *value <= INT32_MAX) return *value;
    return wrong(fmt::format("{} is {}, expected 1 to {}", what, quote(word), INT32_MAX));
  }

 private:
  std::istringstream words_;
  std::string where_;
};

Result<void> apply_option(MoeProblem& problem, const Line& line, const std::string& word) {
  if (word == "bias") {
    problem.biases = true;
  } else if (word == "input") {
    problem.router_weight_side = RouterWeightSide::input;
  } else if (word == "f32") {
    problem.router_dtype = DType::f32;
  } else if (word.starts_with("groups=")) {
    const std::vector<std::string> parts = split(std::string_view(word).substr(7), '/');
    const auto groups = number(parts[0]);
    const auto top = parts.size() == 2 ? number(parts[1]) : std::nullopt;
    if (!groups || !top || *groups > INT32_MAX || *top > *groups) {
      return line.wrong(fmt::format("{}, expected groups=N/TOP with TOP at most N", quote(word)));
    }
    problem.router_groups = static_cast<int>(*groups);
    problem.top_groups = static_cast<int>(*top);
  } else {
    return line.wrong("unknown option " + quote(word));
  }
  return {};
}

Result<void> parse_line(Line& line, const std::string& name, std::vector<NamedProblem>& problems) {
  MoeProblem problem;
  FEWBIT_TRY(problem.hidden_size, line.size("hidden"));
  FEWBIT_TRY(problem.intermediate_size, line.size("intermediate"));
  FEWBIT_TRY(problem.num_experts, line.size("experts"));
  FEWBIT_TRY(const std::int64_t top_k, line.size("top_k"));
  if (top_k > problem.num_experts) {
    return line.wrong(fmt::format("top_k {} of {} experts", top_k, problem.num_experts));
  }
  problem.top_k = static_cast<int>(top_k);
  problem.routed_experts = problem.num_experts;
  FEWBIT_TRY(const std::string function, line.text("activation"));
  FEWBIT_TRY(problem.activation.kind, activation_from_name(function));
  if (problem.activation.kind == Activation::swigluoai) {
    problem.activation = {Activation::swigluoai, 1.702F, 1.0F, 7.0F};
  }
  FEWBIT_TRY(const std::string routing, line.text("routing"));
  FEWBIT_TRY(problem.routing, routing_from_name(routing));
  FEWBIT_TRY(const std::string schemes, line.text("schemes"));
  for (std::string word; line.next(word);) FEWBIT_TRY(apply_option(problem, line, word));
  for (const std::string& scheme : split(schemes, ',')) {
    problem.where = fmt::format("{}/{}", name, scheme);
    FEWBIT_TRY(problem.gate_up, scheme_from_name(scheme));
    problem.down = problem.gate_up;
    problems.push_back({problem.where, problem});
  }
  return {};
}

std::string model_of(const NamedProblem& problem) {
  return problem.name.substr(0, problem.name.find('/'));
}

}  // namespace

Result<Scheme> scheme_from_name(std::string_view name) {
  if (const auto scheme = float_scheme(name)) return *scheme;
  if (name.starts_with("gguf-")) return block_scheme(name);
  return integer_scheme(name);
}

Result<std::vector<NamedProblem>> parse_problems(std::string_view text, const std::string& where) {
  std::istringstream lines{std::string(text)};
  std::vector<NamedProblem> problems;
  std::string content;
  for (int number = 1; std::getline(lines, content); ++number) {
    Line line(std::string_view(content).substr(0, content.find('#')),
              fmt::format("{} line {}", where, number));
    std::string name;
    if (!line.next(name)) continue;
    if (auto done = parse_line(line, name, problems); !done) {
      const Error& error = done.error();
      return error.where.empty() ? line.wrong(error.what) : error;
    }
  }
  return problems;
}

Result<MoeProblem> find_problem(const std::vector<NamedProblem>& problems, std::string_view name) {
  std::string models;
  std::string schemes;
  std::string last;
  std::vector<std::string> names;
  const std::string asked = lower_ascii(name);
  for (const NamedProblem& problem : problems) {
    const std::string model = model_of(problem);
    if (lower_ascii(problem.name) == asked || lower_ascii(model) == asked) return problem.problem;
    if (model != last) {
      models += (models.empty() ? "" : ", ") + model;
      names.push_back(model);
    }
    names.push_back(problem.name);
    last = model;
    if (lower_ascii(model) == asked.substr(0, asked.find('/'))) {
      schemes += (schemes.empty() ? "" : ", ") + problem.name.substr(model.size() + 1);
    }
  }
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("no problem {}, known{}: {}{}", quote(name), schemes.empty() ? "" : " schemes",
                  schemes.empty() ? models : schemes, did_you_mean(name, names)),
      "problem"};
}

}  // namespace fewbit
