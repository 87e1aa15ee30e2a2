// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_writer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "checkpoint/output_file.hpp"
#include "checkpoint/tensor_files.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

}  // namespace

struct GgufWriter::State {
  fs::path folder;  // empty: the current one
  std::vector<PlannedPart> parts;
  TensorFiles data;
  std::vector<fs::path> temporary;  // of the first parts, that many exist

  State(const fs::path& file, GgufPlan plan)
      : folder(file.parent_path()),
        parts(std::move(plan.parts)),
        data(std::move(plan.tensors), file.string()) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    data.abandon();
    std::error_code ignored;
    for (const fs::path& path : temporary) fs::remove(path, ignored);
  }

  fs::path place() const { return folder.empty() ? fs::path(".") : folder; }

  Result<void> check_names_free() const {
    for (const PlannedPart& part : parts) {
      std::error_code ignored;
      if (fs::exists(fs::symlink_status(folder / part.file, ignored))) {
        return Error{ErrorCode::invalid_argument, "exists already", (folder / part.file).string()};
      }
    }
    return {};
  }

  Result<void> create_parts() {
    std::uint64_t bytes = 0;
    for (const PlannedPart& part : parts) bytes += part.file_bytes;
    FEWBIT_TRY(check_room(place(), bytes));
    for (const PlannedPart& part : parts) {
      const fs::path path = fmt::format("{}.partial.{}", (folder / part.file).string(), ::getpid());
      FEWBIT_TRY(auto file, OutputFile::create(path, part.file_bytes));
      temporary.push_back(path);
      FEWBIT_TRY(file.write(std::as_bytes(std::span(part.header)), 0));
      data.add_file(std::move(file));
    }
    return {};
  }

  // Last part first.
  Result<void> publish() {
    while (!temporary.empty()) {
      FEWBIT_TRY(rename_to_new(temporary.back(), folder / parts[temporary.size() - 1].file));
      temporary.pop_back();
    }
    return sync_folder(place());
  }
};

GgufWriter::GgufWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
GgufWriter::GgufWriter(GgufWriter&&) noexcept = default;
GgufWriter& GgufWriter::operator=(GgufWriter&&) noexcept = default;
GgufWriter::~GgufWriter() = default;

Result<GgufWriter> GgufWriter::create(const fs::path& file, const std::vector<GgufPair>& pairs,
                                      const std::vector<GgufTensorSpec>& tensors,
                                      const GgufWriterOptions& options) {
  FEWBIT_TRY(GgufPlan plan, plan_gguf(file.filename().string(), pairs, tensors, options));
  auto state = std::make_unique<State>(file, std::move(plan));
  FEWBIT_TRY(state->check_names_free());
  FEWBIT_TRY(state->create_parts());
  return GgufWriter(std::move(state));
}

Result<void> GgufWriter::write(std::string_view name, std::span<const std::byte> bytes,
                               std::uint64_t offset) {
  return state_->data.write(name, bytes, offset);
}

Result<void> GgufWriter::finish() {
  FEWBIT_TRY(state_->data.finish());
  return state_->publish();
}

std::vector<fs::path> GgufWriter::files() const {
  std::vector<fs::path> paths;
  for (const PlannedPart& part : state_->parts) paths.push_back(state_->folder / part.file);
  return paths;
}

}  // namespace fewbit
