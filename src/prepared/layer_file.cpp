// SPDX-License-Identifier: Apache-2.0
#include "prepared/layer_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "checkpoint/json.hpp"
#include "checkpoint/safetensors.hpp"
#include "core/checked.hpp"
#include "core/quote.hpp"

namespace fewbit {
namespace {

Json entry(std::int64_t rows, std::int64_t row_bytes, std::uint64_t begin, std::uint64_t end) {
  Json out;
  out.append_member("dtype", "U8");
  out.append_member("shape", Json(Json::Array{Json(rows), Json(row_bytes)}));
  out.append_member("data_offsets", Json(Json::Array{Json(begin), Json(end)}));
  return out;
}

Error corrupt(const std::string& file, const std::string& tensor, std::string what) {
  return Error{ErrorCode::corrupt, std::move(what), file + ": tensor " + quote(tensor)};
}

// Adds buffers and the padding between them, data begins at 0.
class Layout {
 public:
  explicit Layout(const PreparedLayerInfo& layer) : layer_(layer) {}

  Result<LayerFile> plan() {
    Json::Object metadata;
    metadata.emplace_back("format", Json("fewbit-prepared"));
    members_.emplace_back(safetensors_metadata_key, Json(std::move(metadata)));
    for (const PlannedBuffer& buffer : layer_.plan.buffers) FEWBIT_TRY(add(buffer));
    std::string text = Json(std::move(members_)).dump();
    text.resize(round_up(text.size() + 8, static_cast<std::size_t>(alignment_)) - 8, ' ');
    for (std::size_t i = 0; i < 8; ++i) {
      file_.header += static_cast<char>(text.size() >> (8 * i) & 0xff);
    }
    file_.header += text;
    for (std::uint64_t& begin : file_.begin) begin += file_.header.size();
    for (auto& gap : file_.gaps) gap.first += file_.header.size();
    file_.bytes = file_.header.size() + at_;
    return std::move(file_);
  }

 private:
  Result<void> add(const PlannedBuffer& buffer) {
    alignment_ = std::max(alignment_, buffer.alignment);
    const auto begin = checked_round_up(at_, buffer.alignment);
    const auto size =
        checked_mul(static_cast<std::uint64_t>(layer_.plan.experts), buffer.expert_bytes);
    const auto end = begin && size ? checked_add(*begin, *size) : std::nullopt;
    if (!end || *end > std::uint64_t{1} << 62) {
      return Error{ErrorCode::limit,
                   fmt::format("buffer {} ends behind byte 2^62 of the file", buffer.name),
                   layer_.file};
    }
    if (*begin > at_) {
      members_.emplace_back(fmt::format("padding:{}", file_.gaps.size()),
                            entry(1, static_cast<std::int64_t>(*begin - at_), at_, *begin));
      file_.gaps.emplace_back(at_, *begin - at_);
    }
    members_.emplace_back(
        buffer_tensor_name(layer_, buffer),
        entry(layer_.plan.experts, static_cast<std::int64_t>(buffer.expert_bytes), *begin, *end));
    file_.begin.push_back(*begin);
    at_ = *end;
    return {};
  }

  const PreparedLayerInfo& layer_;
  LayerFile file_;
  Json::Object members_;
  std::uint64_t at_ = 0;
  std::uint64_t alignment_ = 64;
};

Result<const TensorInfo*> find_buffer(const SafetensorsHeader& header,
                                      const PreparedLayerInfo& layer, const PlannedBuffer& buffer,
                                      const std::string& file) {
  const std::string name = buffer_tensor_name(layer, buffer);
  const auto at = std::ranges::find(header.tensors, name, &TensorInfo::name);
  if (at == header.tensors.end()) {
    return corrupt(file, name, fmt::format("missing among {} tensors", header.tensors.size()));
  }
  const Shape shape{layer.plan.experts, static_cast<std::int64_t>(buffer.expert_bytes)};
  if (at->dtype != DType::u8 || at->shape != shape) {
    return corrupt(file, name,
                   fmt::format("{} {}, {} says u8 {}", dtype_name(at->dtype), shape_text(at->shape),
                               manifest_name, shape_text(shape)));
  }
  if (at->file_offset % buffer.alignment != 0) {
    return corrupt(file, name,
                   fmt::format("begins at byte {}, expected a multiple of {}", at->file_offset,
                               buffer.alignment));
  }
  return &*at;
}

}  // namespace

Result<LayerFile> plan_layer_file(const PreparedLayerInfo& layer) { return Layout(layer).plan(); }

Result<PreparedMemory> map_layer(const PreparedLayerInfo& layer,
                                 const std::shared_ptr<const MappedFile>& file) {
  const std::string name = file->path().string();
  FEWBIT_TRY(const SafetensorsHeader header, parse_safetensors(file->bytes(), name));
  PreparedMemory memory;
  const auto experts = static_cast<std::size_t>(layer.plan.experts);
  memory.experts.resize(experts);
  for (auto& shares : memory.experts) shares.reserve(layer.plan.buffers.size());
  for (const PlannedBuffer& buffer : layer.plan.buffers) {
    FEWBIT_TRY(const TensorInfo* info, find_buffer(header, layer, buffer, name));
    for (std::size_t e = 0; e < experts; ++e) {
      memory.experts[e].push_back(
          file->bytes().subspan(info->file_offset + e * buffer.expert_bytes, buffer.expert_bytes));
    }
    if (buffer.use != BufferUse::at_open) memory.mapped_bytes += info->bytes;
  }
  memory.owners.push_back(file);
  return memory;
}

}  // namespace fewbit
