// SPDX-License-Identifier: Apache-2.0
#include "prepared/problem_json.hpp"

#include <fmt/format.h>

#include <bit>
#include <limits>

#include "core/quote.hpp"
#include "prepared/enum_names.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t most_size = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max();

template <class Enum, std::size_t count>
Result<Enum> parse_enum(const JsonFields& fields, std::string_view key,
                        const EnumNames<Enum, count>& names) {
  FEWBIT_TRY(const std::string text, fields.text(key));
  const auto value = enum_value(names, text);
  if (value) return *value;
  return fields.bad(key,
                    fmt::format("expected one of {}, found {}", known_names(names), quote(text)));
}

Result<DType> parse_dtype(const JsonFields& fields, std::string_view key) {
  FEWBIT_TRY(const std::string text, fields.text(key));
  const auto dtype = dtype_from_name(text);
  if (dtype) return *dtype;
  return fields.bad(key, "expected the name of a type, found " + quote(text));
}

Json dtype_json(DType dtype) { return Json(std::string(dtype_name(dtype))); }

Json float_bits(float value) { return Json(std::int64_t{std::bit_cast<std::uint32_t>(value)}); }

Result<float> parse_float_bits(const JsonFields& fields, std::string_view key) {
  FEWBIT_TRY(const std::int64_t bits,
             fields.integer(key, 0, std::numeric_limits<std::uint32_t>::max()));
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

Json scale_json(const ScaleSpec& scale) {
  Json out;
  out.set("dtype", dtype_json(scale.dtype));
  out.set("rows", scale.granularity.rows);
  out.set("cols", scale.granularity.cols);
  out.set("has_global", scale.has_global);
  out.set("global_direction", enum_name(direction_names, scale.global_direction));
  return out;
}

Result<ScaleSpec> parse_scale(const JsonFields& fields) {
  ScaleSpec scale;
  FEWBIT_TRY(scale.dtype, parse_dtype(fields, "dtype"));
  FEWBIT_TRY(scale.granularity.rows, fields.integer("rows", 0, most_size));
  FEWBIT_TRY(scale.granularity.cols, fields.integer("cols", 0, most_size));
  FEWBIT_TRY(scale.has_global, fields.boolean("has_global"));
  FEWBIT_TRY(scale.global_direction, parse_enum(fields, "global_direction", direction_names));
  return scale;
}

Json activation_json(const ActivationParams& params) {
  Json out;
  out.set("kind", enum_name(activation_names, params.kind));
  out.set("alpha_bits", float_bits(params.alpha));
  out.set("beta_bits", float_bits(params.beta));
  out.set("limit_bits", params.limit ? float_bits(*params.limit) : Json());
  return out;
}

Result<ActivationParams> parse_activation(const JsonFields& fields) {
  ActivationParams params;
  FEWBIT_TRY(params.kind, parse_enum(fields, "kind", activation_names));
  FEWBIT_TRY(params.alpha, parse_float_bits(fields, "alpha_bits"));
  FEWBIT_TRY(params.beta, parse_float_bits(fields, "beta_bits"));
  if (!fields.is_null("limit_bits")) {
    FEWBIT_TRY(params.limit, parse_float_bits(fields, "limit_bits"));
  }
  return params;
}

Result<PlannedBuffer> parse_buffer(const JsonFields& fields) {
  PlannedBuffer buffer;
  FEWBIT_TRY(buffer.name, fields.text("name"));
  FEWBIT_TRY(buffer.layout, fields.text("layout"));
  FEWBIT_TRY(buffer.scale_format, fields.text("scale_format"));
  FEWBIT_TRY(buffer.source, fields.text("source"));
  FEWBIT_TRY(buffer.dtype, parse_dtype(fields, "dtype"));
  FEWBIT_TRY(buffer.shape, fields.integers("shape", 0, most_bytes));
  FEWBIT_TRY(const std::int64_t alignment, fields.integer("alignment", 1, 4096));
  buffer.alignment = static_cast<std::uint64_t>(alignment);
  FEWBIT_TRY(buffer.use, parse_enum(fields, "use", use_names));
  return buffer;
}

}  // namespace

Json scheme_json(const Scheme& scheme) {
  Json out;
  out.set("producer", enum_name(producer_names, scheme.producer));
  out.set("weight", dtype_json(scheme.weight));
  out.set("packing", enum_name(packing_names, scheme.packing));
  out.set("scale", scheme.scale ? scale_json(*scheme.scale) : Json());
  out.set("zero_point", std::int64_t{scheme.zero_point});
  out.set("zero_points", scheme.zero_points);
  out.set("act_order", enum_name(act_order_names, scheme.act_order));
  out.set("activation", scheme.activation ? dtype_json(*scheme.activation) : Json());
  out.set("pre_quant_scale", scheme.pre_quant_scale);
  out.set("ggml_type", scheme.ggml_type ? Json(*scheme.ggml_type) : Json());
  return out;
}

Result<Scheme> parse_scheme(const JsonFields& fields) {
  Scheme scheme;
  FEWBIT_TRY(scheme.producer, parse_enum(fields, "producer", producer_names));
  FEWBIT_TRY(scheme.weight, parse_dtype(fields, "weight"));
  FEWBIT_TRY(scheme.packing, parse_enum(fields, "packing", packing_names));
  if (!fields.is_null("scale")) {
    FEWBIT_TRY(const JsonFields scale, fields.object("scale"));
    FEWBIT_TRY(scheme.scale, parse_scale(scale));
  }
  FEWBIT_TRY(const std::int64_t zero, fields.integer("zero_point", -65536, 65536));
  scheme.zero_point = static_cast<std::int32_t>(zero);
  FEWBIT_TRY(scheme.zero_points, fields.boolean("zero_points"));
  FEWBIT_TRY(scheme.act_order, parse_enum(fields, "act_order", act_order_names));
  if (!fields.is_null("activation")) {
    FEWBIT_TRY(scheme.activation, parse_dtype(fields, "activation"));
  }
  FEWBIT_TRY(scheme.pre_quant_scale, fields.boolean("pre_quant_scale"));
  if (!fields.is_null("ggml_type")) {
    FEWBIT_TRY(const std::int64_t type, fields.integer("ggml_type", 0, 255));
    scheme.ggml_type = static_cast<int>(type);
  }
  return scheme;
}

namespace {

Json router_json(const MoeProblem& problem) {
  Json out;
  out.set("routing", enum_name(routing_names, problem.routing));
  out.set("groups", problem.router_groups);
  out.set("top_groups", problem.top_groups);
  out.set("logits", dtype_json(problem.router_dtype));
  out.set("experts", problem.routed_experts);
  out.set("tensor_ranks", problem.parallel.tensor);
  out.set("expert_ranks", problem.parallel.expert);
  out.set("token_exchange", enum_name(exchange_names, problem.parallel.exchange));
  return out;
}

Result<int> parse_int(const JsonFields& fields, std::string_view key, std::int64_t low) {
  FEWBIT_TRY(const std::int64_t value, fields.integer(key, low, most_size));
  return static_cast<int>(value);
}

Result<void> parse_router(const JsonFields& fields, MoeProblem& problem) {
  FEWBIT_TRY(problem.routing, parse_enum(fields, "routing", routing_names));
  FEWBIT_TRY(problem.router_groups, parse_int(fields, "groups", 0));
  FEWBIT_TRY(problem.top_groups, parse_int(fields, "top_groups", 0));
  FEWBIT_TRY(problem.router_dtype, parse_dtype(fields, "logits"));
  FEWBIT_TRY(problem.routed_experts, fields.integer("experts", 0, most_size));
  FEWBIT_TRY(problem.parallel.tensor, parse_int(fields, "tensor_ranks", 1));
  FEWBIT_TRY(problem.parallel.expert, parse_int(fields, "expert_ranks", 1));
  FEWBIT_TRY(problem.parallel.exchange, parse_enum(fields, "token_exchange", exchange_names));
  return {};
}

}  // namespace

Json problem_json(const MoeProblem& problem) {
  Json out;
  out.set("hidden_size", problem.hidden_size);
  out.set("intermediate_size", problem.intermediate_size);
  out.set("num_experts", problem.num_experts);
  out.set("top_k", problem.top_k);
  out.set("gate_up", scheme_json(problem.gate_up));
  out.set("down", scheme_json(problem.down));
  out.set("activation", activation_json(problem.activation));
  out.set("activation_dtype", dtype_json(problem.activation_dtype));
  out.set("router_weight_side", enum_name(side_names, problem.router_weight_side));
  out.set("expert_map", problem.expert_map);
  out.set("biases", problem.biases);
  out.set("where", problem.where);
  out.set("router", router_json(problem));
  return out;
}

Result<MoeProblem> parse_problem(const JsonFields& fields) {
  MoeProblem problem;
  FEWBIT_TRY(problem.hidden_size, fields.integer("hidden_size", 1, most_size));
  FEWBIT_TRY(problem.intermediate_size, fields.integer("intermediate_size", 1, most_size));
  FEWBIT_TRY(problem.num_experts, fields.integer("num_experts", 1, 65536));
  FEWBIT_TRY(const std::int64_t top_k, fields.integer("top_k", 1, 65536));
  problem.top_k = static_cast<int>(top_k);
  FEWBIT_TRY(const JsonFields gate_up, fields.object("gate_up"));
  FEWBIT_TRY(problem.gate_up, parse_scheme(gate_up));
  FEWBIT_TRY(const JsonFields down, fields.object("down"));
  FEWBIT_TRY(problem.down, parse_scheme(down));
  FEWBIT_TRY(const JsonFields activation, fields.object("activation"));
  FEWBIT_TRY(problem.activation, parse_activation(activation));
  FEWBIT_TRY(problem.activation_dtype, parse_dtype(fields, "activation_dtype"));
  FEWBIT_TRY(problem.router_weight_side, parse_enum(fields, "router_weight_side", side_names));
  FEWBIT_TRY(problem.expert_map, fields.boolean("expert_map"));
  FEWBIT_TRY(problem.biases, fields.boolean("biases"));
  FEWBIT_TRY(problem.where, fields.text("where"));
  FEWBIT_TRY(const JsonFields router, fields.object("router"));
  FEWBIT_TRY(parse_router(router, problem));
  return problem;
}

Json plan_json(const MoePlan& plan) {
  Json::Array buffers;
  for (const PlannedBuffer& buffer : plan.buffers) {
    Json out;
    out.set("name", buffer.name);
    out.set("layout", buffer.layout);
    out.set("scale_format", buffer.scale_format);
    out.set("source", buffer.source);
    out.set("dtype", dtype_json(buffer.dtype));
    Json::Array shape;
    for (const std::int64_t extent : buffer.shape) shape.emplace_back(extent);
    out.set("shape", Json(std::move(shape)));
    out.set("alignment", buffer.alignment);
    out.set("use", enum_name(use_names, buffer.use));
    buffers.push_back(std::move(out));
  }
  return Json(std::move(buffers));
}

Result<MoePlan> parse_plan(const JsonFields& fields, std::int64_t experts) {
  MoePlan plan{.experts = experts, .buffers = {}};
  FEWBIT_TRY(const std::vector<JsonFields> buffers, fields.objects("buffers"));
  for (const JsonFields& each : buffers) {
    FEWBIT_TRY(PlannedBuffer buffer, parse_buffer(each));
    const auto added = plan.add(std::move(buffer));
    if (!added) return each.bad("shape", added.error().message());
  }
  return plan;
}

}  // namespace fewbit
