// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_plan.hpp"

#include <fmt/format.h>

#include <bit>
#include <limits>
#include <unordered_set>

#include "checkpoint/gguf_container.hpp"
#include "checkpoint/gguf_tensors.hpp"
#include "core/checked.hpp"
#include "core/quote.hpp"
#include "core/utf8.hpp"

namespace fewbit {
namespace {

using gguf_encoding::append_number;
using gguf_encoding::append_string;

constexpr std::uint32_t written_version = 3;
constexpr std::string_view extension = ".gguf";

Error bad(std::string what, std::string where) {
  return Error{ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

Result<void> check_name(std::string_view kind, const std::string& name, std::size_t most,
                        std::unordered_set<std::string_view>& seen) {
  const std::string where = fmt::format("{} {}", kind, quote(name));
  if (name.empty() || name.size() > most) {
    return bad(fmt::format("a name of {} bytes, expected 1 to {}", name.size(), most), where);
  }
  if (!is_utf8(name)) return bad("the name is no UTF-8", where);
  if (name.find('\0') != name.npos) return bad("the name holds a zero byte", where);
  if (!seen.insert(name).second) return bad("declared twice", where);
  return {};
}

Result<void> check_pairs(const std::vector<GgufPair>& pairs) {
  std::unordered_set<std::string_view> seen;
  for (const GgufPair& pair : pairs) {
    FEWBIT_TRY(check_name("key", pair.key, gguf_max_key_bytes, seen));
    if (pair.key == gguf_alignment_key || pair.key.starts_with("split.")) {
      return bad("the writer sets it itself", "key " + quote(pair.key));
    }
  }
  return {};
}

// All but file_offset and shard.
Result<TensorInfo> tensor_info(const GgufTensorSpec& spec) {
  const std::string where = "tensor " + quote(spec.name);
  if (spec.type.elements < 1) return bad(std::string(spec.type.name) + " has no extent", where);
  if (spec.shape.empty() || spec.shape.size() > gguf_max_dimensions) {
    return bad(
        fmt::format("{} dimensions, expected 1 to {}", spec.shape.size(), gguf_max_dimensions),
        where);
  }
  for (const std::int64_t dim : spec.shape) {
    if (dim < 1) return bad(fmt::format("dimension {}, expected at least 1", dim), where);
  }
  const auto elements = shape_elements(spec.shape);
  if (!elements) return Error{ErrorCode::limit, elements.error().what, where};
  const GgufEntry entry{spec.name, {spec.shape.rbegin(), spec.shape.rend()}, spec.type.id, 0};
  auto info = gguf_tensor_info(entry, spec.type, where);
  if (!info) return bad(info.error().what, where);
  return info;
}

struct DataPlan {
  std::vector<TensorInfo> tensors;        // file_offset counts from the begin of the data
  std::vector<std::uint64_t> data_bytes;  // of each part, padded
};

Result<DataPlan> plan_data(const std::vector<GgufTensorSpec>& specs,
                           const GgufWriterOptions& options) {
  DataPlan plan;
  plan.data_bytes.push_back(0);
  std::unordered_set<std::string_view> seen;
  bool fresh = true;  // the part holds no tensor yet
  for (const GgufTensorSpec& spec : specs) {
    FEWBIT_TRY(check_name("tensor", spec.name, gguf_max_name_bytes, seen));
    FEWBIT_TRY(TensorInfo info, tensor_info(spec));
    const auto padded = checked_round_up(info.bytes, options.alignment);
    const auto end = padded ? checked_add(plan.data_bytes.back(), *padded) : std::nullopt;
    const std::uint64_t limit = std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    if (!end || *end > limit) {
      return Error{ErrorCode::limit,
                   fmt::format("the data passes 2^63 - 1 bytes with {} more", info.bytes),
                   "tensor " + quote(spec.name)};
    }
    if (!fresh && options.max_part_bytes && *end > *options.max_part_bytes) {
      plan.data_bytes.push_back(0);
    }
    info.file_offset = plan.data_bytes.back();
    info.shard = static_cast<std::int32_t>(plan.data_bytes.size() - 1);
    plan.data_bytes.back() += *padded;
    plan.tensors.push_back(std::move(info));
    fresh = false;
  }
  if (plan.data_bytes.size() > std::numeric_limits<std::uint16_t>::max()) {
    return Error{ErrorCode::limit, fmt::format("{} parts, at most 65535", plan.data_bytes.size()),
                 "max_part_bytes"};
  }
  return plan;
}

// The pairs of part `part` of `parts`, with those that the writer adds.
std::vector<GgufPair> pairs_of_part(std::size_t part, const DataPlan& plan,
                                    const std::vector<GgufPair>& pairs, std::uint64_t alignment) {
  std::vector<GgufPair> all;
  if (part == 0) all = pairs;
  if (alignment != gguf_default_alignment) {
    all.push_back(
        gguf_pair(std::string(gguf_alignment_key), static_cast<std::uint32_t>(alignment)));
  }
  if (plan.data_bytes.size() > 1) {
    // Integer widths as llama.cpp's splitter writes them.
    all.push_back(gguf_pair("split.no", static_cast<std::uint16_t>(part)));
    all.push_back(gguf_pair("split.count", static_cast<std::uint16_t>(plan.data_bytes.size())));
    all.push_back(gguf_pair("split.tensors.count", static_cast<std::int32_t>(plan.tensors.size())));
  }
  return all;
}

std::string header_of_part(std::size_t part, const DataPlan& plan,
                           const std::vector<GgufTensorSpec>& specs,
                           const std::vector<GgufPair>& pairs) {
  std::string entries;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (plan.tensors[i].shard != static_cast<std::int32_t>(part)) continue;
    ++count;
    append_string(entries, specs[i].name);
    append_number(entries, static_cast<std::uint32_t>(specs[i].shape.size()));
    for (auto dim = specs[i].shape.rbegin(); dim != specs[i].shape.rend(); ++dim) {
      append_number(entries, static_cast<std::uint64_t>(*dim));
    }
    append_number(entries, static_cast<std::uint32_t>(specs[i].type.id));
    append_number(entries, plan.tensors[i].file_offset);
  }
  std::string header(gguf_magic);
  append_number(header, written_version);
  append_number(header, count);
  append_number(header, std::uint64_t{pairs.size()});
  for (const GgufPair& pair : pairs) {
    append_string(header, pair.key);
    header += pair.encoded;
  }
  return header + entries;
}

}  // namespace

Result<GgufPlan> plan_gguf(const std::string& file_name, const std::vector<GgufPair>& pairs,
                           const std::vector<GgufTensorSpec>& tensors,
                           const GgufWriterOptions& options) {
  if (!file_name.ends_with(extension) || file_name.size() == extension.size() ||
      parse_gguf_split_name(file_name)) {
    return bad(fmt::format("expected a file name like \"model{}\"", extension), quote(file_name));
  }
  if (!std::has_single_bit(options.alignment) ||
      options.alignment > std::numeric_limits<std::uint32_t>::max()) {
    return bad(fmt::format("{}, expected a power of two below 2^32", options.alignment),
               "alignment");
  }
  FEWBIT_TRY(check_pairs(pairs));
  FEWBIT_TRY(DataPlan data, plan_data(tensors, options));
  GgufPlan plan;
  const std::size_t count = data.data_bytes.size();
  const std::string prefix = file_name.substr(0, file_name.size() - extension.size());
  std::vector<std::uint64_t> data_begin;
  for (std::size_t part = 0; part < count; ++part) {
    PlannedPart planned;
    planned.file = count == 1 ? file_name : gguf_split_file_name({prefix, part + 1, count});
    planned.header =
        header_of_part(part, data, tensors, pairs_of_part(part, data, pairs, options.alignment));
    const std::uint64_t begin = round_up<std::uint64_t>(planned.header.size(), options.alignment);
    planned.file_bytes = begin + data.data_bytes[part];
    data_begin.push_back(begin);
    plan.parts.push_back(std::move(planned));
  }
  plan.tensors = std::move(data.tensors);
  for (TensorInfo& info : plan.tensors) {
    info.file_offset += data_begin[static_cast<std::size_t>(info.shard)];
  }
  return plan;
}

}  // namespace fewbit
