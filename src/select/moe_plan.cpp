// SPDX-License-Identifier: Apache-2.0
#include "select/moe_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "core/checked.hpp"
#include "core/quote.hpp"

namespace fewbit {
namespace {

Error bad_share(const std::string& where, const PlannedBuffer& buffer, std::size_t expert,
                std::string what) {
  return Error{ErrorCode::invalid_argument,
               fmt::format("buffer {} of expert {}: {}", buffer.name, expert, what), where};
}

Result<void> check_field(const PlannedBuffer& buffer, const char* field,
                         const std::string& expected, const std::string& found,
                         const std::string& where) {
  if (expected == found) return {};
  return Error{ErrorCode::inconsistent,
               fmt::format("buffer {} has {} {}, expected {}", buffer.name, field, quote(found),
                           quote(expected)),
               where};
}

Result<void> check_same_buffer(const PlannedBuffer& expected, const PlannedBuffer& found,
                               const std::string& where) {
  const auto check = [&](const char* field, const std::string& a, const std::string& b) {
    return check_field(found, field, a, b, where);
  };
  FEWBIT_TRY(check("name", expected.name, found.name));
  FEWBIT_TRY(check("layout", expected.layout, found.layout));
  FEWBIT_TRY(check("scale format", expected.scale_format, found.scale_format));
  FEWBIT_TRY(check("source", expected.source, found.source));
  FEWBIT_TRY(check("use", buffer_use_name(expected.use), buffer_use_name(found.use)));
  FEWBIT_TRY(check("dtype", std::string(dtype_name(expected.dtype)),
                   std::string(dtype_name(found.dtype))));
  FEWBIT_TRY(check("shape", shape_text(expected.shape), shape_text(found.shape)));
  return check("alignment", std::to_string(expected.alignment), std::to_string(found.alignment));
}

}  // namespace

const char* buffer_use_name(BufferUse use) {
  switch (use) {
    case BufferUse::packed:
      return "packed";
    case BufferUse::verbatim:
      return "verbatim";
    case BufferUse::at_open:
      return "at_open";
  }
  return "unknown";
}

Result<void> MoePlan::add(PlannedBuffer buffer) {
  constexpr std::uint64_t most_alignment = 4096;
  const std::string where = "buffer " + quote(buffer.name);
  if (find(buffer.name) != nullptr) {
    return Error{ErrorCode::invalid_argument, "planned twice", where};
  }
  if (!std::has_single_bit(buffer.alignment) || buffer.alignment > most_alignment) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("alignment {}, expected a power of two up to {}", buffer.alignment,
                             most_alignment),
                 where};
  }
  const auto bytes = tensor_bytes(buffer.dtype, buffer.shape);
  if (!bytes) return Error{bytes.error().code, bytes.error().what, where};
  buffer.expert_bytes = *bytes;
  const auto count = checked_cast<std::uint64_t>(experts);
  const auto all = count ? checked_mul(*count, *bytes) : std::nullopt;
  if (!all || *all > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return Error{ErrorCode::limit,
                 fmt::format("{} experts of {} bytes overflow 2^63", experts, *bytes), where};
  }
  buffers.push_back(std::move(buffer));
  return {};
}

std::int64_t MoePlan::index(std::string_view name) const {
  const auto at = std::ranges::find(buffers, name, &PlannedBuffer::name);
  return at == buffers.end() ? -1 : at - buffers.begin();
}

const PlannedBuffer* MoePlan::find(std::string_view name) const {
  const std::int64_t at = index(name);
  return at < 0 ? nullptr : &buffers[static_cast<std::size_t>(at)];
}

std::string layouts_text(const MoePlan& plan) {
  std::vector<std::string_view> names;
  for (const PlannedBuffer& buffer : plan.buffers) {
    if (buffer.use == BufferUse::at_open) continue;
    if (std::ranges::find(names, buffer.layout) == names.end()) names.push_back(buffer.layout);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<void> check_same_plan(const MoePlan& expected, const MoePlan& found,
                             const std::string& where) {
  if (expected.experts != found.experts) {
    return Error{ErrorCode::inconsistent,
                 fmt::format("{} experts, expected {}", found.experts, expected.experts), where};
  }
  if (expected.buffers.size() != found.buffers.size()) {
    return Error{
        ErrorCode::inconsistent,
        fmt::format("{} buffers, expected {}", found.buffers.size(), expected.buffers.size()),
        where};
  }
  for (std::size_t i = 0; i < expected.buffers.size(); ++i) {
    FEWBIT_TRY(check_same_buffer(expected.buffers[i], found.buffers[i], where));
  }
  return {};
}

const Tensor* canonical_part(const ExpertWeights& expert, std::string_view name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const std::string_view matrix = name.substr(0, dot);
  const std::string_view part = name.substr(dot + 1);
  const QuantizedTensor* tensor = nullptr;
  if (matrix == "gate" && expert.gate) tensor = &*expert.gate;
  if (matrix == "up") tensor = &expert.up;
  if (matrix == "down") tensor = &expert.down;
  if (tensor == nullptr) return nullptr;
  if (part == "codes") return &tensor->codes;
  if (part == "scales") return &tensor->scales;
  if (part == "zero_points") return &tensor->zero_points;
  if (part == "offsets") return &tensor->offsets;
  if (part == "g_idx") return &tensor->g_idx;
  if (part == "pre_quant_scale") return &tensor->pre_quant_scale;
  return nullptr;
}

Result<void> check_memory(const MoePlan& plan, const PreparedMemory& memory,
                          const std::string& where) {
  if (std::ssize(memory.experts) != plan.experts) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("memory of {} experts, expected {}", memory.experts.size(), plan.experts),
        where};
  }
  for (std::size_t e = 0; e < memory.experts.size(); ++e) {
    const auto& shares = memory.experts[e];
    if (shares.size() != plan.buffers.size()) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("expert {} has {} buffers, expected {}", e, shares.size(),
                               plan.buffers.size()),
                   where};
    }
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const PlannedBuffer& buffer = plan.buffers[i];
      if (shares[i].size() != buffer.expert_bytes) {
        return bad_share(
            where, buffer, e,
            fmt::format("{} bytes, expected {}", shares[i].size(), buffer.expert_bytes));
      }
      const auto address = reinterpret_cast<std::uintptr_t>(shares[i].data());
      if (e == 0 && buffer.use == BufferUse::packed && address % buffer.alignment != 0) {
        return bad_share(where, buffer, e,
                         fmt::format("begins {} bytes behind a multiple of {}",
                                     address % buffer.alignment, buffer.alignment));
      }
    }
  }
  return {};
}

}  // namespace fewbit
