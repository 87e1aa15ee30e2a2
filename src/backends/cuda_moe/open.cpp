// SPDX-License-Identifier: Apache-2.0
// From packed shares, or from canonical weights, to a layer in device memory.
#include <fmt/format.h>

#include <cstring>

#include "backends/cuda_moe/expert_parts.hpp"
#include "backends/cuda_moe/prepared.hpp"
#include "backends/cuda_moe/weight_cells.hpp"
#include "kernels/cuda/pack_f4.hpp"

namespace fewbit::cuda {
namespace {

// Fills a layer expert by expert, and then makes it.
class Filler {
 public:
  static Result<Filler> create(const MoeProblem& problem) {
    Filler filler(problem);
    FEWBIT_TRY(device::use(0));
    FEWBIT_TRY(filler.card_, device::info(0));
    FEWBIT_TRY(filler.scratch_, SharedScratch::get());
    const device::Stream& stream = filler.stream();
    const auto experts = static_cast<std::uint64_t>(problem.num_experts);
    const CellFormat format = format_of(problem);
    filler.bytes1_ = static_cast<std::uint64_t>(packed_bytes(format, half1(problem)));
    filler.bytes2_ = static_cast<std::uint64_t>(packed_bytes(format, half2(problem)));
    FEWBIT_TRY(filler.weights_.gate_up, device::Buffer::allocate(experts * filler.bytes1_, stream));
    FEWBIT_TRY(filler.weights_.down, device::Buffer::allocate(experts * filler.bytes2_, stream));
    return filler;
  }

  const device::Stream& stream() const { return scratch_->stream(); }
  std::byte* gate_up(std::int64_t expert) const {
    return weights_.gate_up.data() + static_cast<std::uint64_t>(expert) * bytes1_;
  }
  std::byte* down(std::int64_t expert) const {
    return weights_.down.data() + static_cast<std::uint64_t>(expert) * bytes2_;
  }

  // The small parts of the next expert.
  void add(const std::array<float, 3>& globals, std::span<const float> rows,
           std::span<const float> biases, const ScaleRange& range) {
    const float factor = f4_global_factor(format_of(problem_));
    globals1_.push_back(globals[0] * factor);
    globals1_.push_back(globals[1] * factor);
    globals2_.push_back(globals[2] * factor);
    add_halves(rows, rows1_, rows2_);
    add_halves(biases, bias1_, bias2_);
    grouped_ = grouped_ && grouped_takes(problem_, range);
  }

  Result<std::unique_ptr<PreparedMoe>> finish() {
    const StreamCard card{.sm_count = card_.sm_count,
                          .shared_memory_bytes = card_.shared_memory_bytes};
    const auto streaming = plan_stream(format_of(problem_), shape_of(problem_, 1), card);
    if (!grouped_ && !streaming) {
      return Error{ErrorCode::unsupported,
                   fmt::format("e8m0 scales outside {} to {}, and {}", grouped_least_e8m0,
                               grouped_most_e8m0, streaming.error().what),
                   problem_.where};
    }
    FEWBIT_TRY(weights_.globals1, upload(globals1_));
    FEWBIT_TRY(weights_.globals2, upload(globals2_));
    if (!rows1_.empty()) {
      FEWBIT_TRY(weights_.rows1, upload(rows1_));
      FEWBIT_TRY(weights_.rows2, upload(rows2_));
    }
    if (!bias1_.empty()) {
      FEWBIT_TRY(weights_.bias1, upload(bias1_));
      FEWBIT_TRY(weights_.bias2, upload(bias2_));
    }
    FEWBIT_TRY(stream().synchronize());
    PreparedInfo info{.backend = "cuda_moe",
                      .layout = layout_name(format_of(problem_)),
                      .owned_bytes = weights_.gate_up.size() + weights_.down.size()};
    const std::shared_ptr<SharedScratch> scratch = scratch_;
    auto moe = std::make_unique<Moe>(problem_, card_, scratch_, std::move(weights_), grouped_,
                                     std::move(info));
    // So that calls take no memory.
    FEWBIT_TRY(const std::uint64_t bytes,
               moe->host_call_bytes(problem_.max_tokens, problem_.routed_experts));
    const std::scoped_lock lock(scratch->mutex());
    FEWBIT_TRY(scratch->memory(bytes));
    return std::unique_ptr<PreparedMoe>(std::move(moe));
  }

 private:
  explicit Filler(const MoeProblem& problem) : problem_(problem) {}
  // What rows of fc1 and of fc2 have, behind those of the experts before.
  void add_halves(std::span<const float> values, std::vector<float>& first,
                  std::vector<float>& second) const {
    if (values.empty()) return;
    const auto of_first = values.first(static_cast<std::size_t>(2 * half1(problem_).n));
    first.insert(first.end(), of_first.begin(), of_first.end());
    second.insert(second.end(), values.begin() + std::ssize(of_first), values.end());
  }
  Result<device::Buffer> upload(const std::vector<float>& values) const {
    const auto bytes = std::as_bytes(std::span(values));
    FEWBIT_TRY(device::Buffer buffer, device::Buffer::allocate(bytes.size(), stream()));
    FEWBIT_TRY(device::copy_to_device(buffer.data(), bytes, stream()));
    return buffer;
  }

  MoeProblem problem_;
  DeviceInfo card_;
  std::shared_ptr<SharedScratch> scratch_;
  LayerWeights weights_;
  std::uint64_t bytes1_ = 0;
  std::uint64_t bytes2_ = 0;
  std::vector<float> globals1_, globals2_, rows1_, rows2_, bias1_, bias2_;
  bool grouped_ = true;
};

// One expert's codes and scales on the device, packed from there.
class ExpertPacker {
 public:
  ExpertPacker(const MoeProblem& problem, const device::Stream& stream)
      : problem_(problem), stream_(stream) {}

  Result<void> pack(const ExpertWeights& expert, int matrix, std::byte* to) {
    switch (format_of(problem_).kind) {
      case CellKind::int4:
        return pack_int4(expert, matrix, to);
      case CellKind::f8:
        return pack_f8(expert, matrix, to);
      default:
        return pack_f4(expert, matrix, to);
    }
  }
  // After all experts: waits for them. Error unsupported: a code was NaN.
  Result<void> check() const {
    if (nan_.size() == 0) return {};
    std::uint32_t nan = 0;
    FEWBIT_TRY(
        device::copy_to_host(std::as_writable_bytes(std::span(&nan, 1)), nan_.data(), stream_));
    FEWBIT_TRY(stream_.synchronize());
    if (nan != 0) return nan_code(problem_);
    return {};
  }

 private:
  Result<void> pack_f4(const ExpertWeights& expert, int matrix, std::byte* to) {
    const Dims half = matrix == 0 ? half1(problem_) : half2(problem_);
    const std::int64_t group = format_of(problem_).kind == CellKind::nvfp4 ? 16 : 32;
    const CudaF4Source from = source_of(problem_, expert, matrix);
    const auto codes = static_cast<std::size_t>(half.n * half.k / 2);
    const auto scales = static_cast<std::size_t>(half.n * (half.k / group));
    PackF4Args args;
    args.count = 1;
    args.rows = static_cast<int>(half.n);
    args.depth = static_cast<int>(half.k);
    args.to = reinterpret_cast<std::uint8_t*>(to);
    for (int h = 0; h < 2; ++h) {
      FEWBIT_TRY(args.codes[h], copy(from.codes[h], codes, memory_[matrix][h]));
      FEWBIT_TRY(args.scales[h], copy(from.scales[h], scales, memory_[matrix][2 + h]));
    }
    return device::check(launch_pack_f4(format_of(problem_), args, stream_.handle()),
                         problem_.where + ", packing an expert");
  }

  Result<void> pack_int4(const ExpertWeights& expert, int matrix, std::byte* to) {
    FEWBIT_TRY(Int4Parts parts, int4_parts_of(problem_, expert, matrix));
    CudaInt4Source& from = parts.source;
    const auto codes = static_cast<std::size_t>(from.rows * (from.depth / 2));
    for (int h = 0; h < 2; ++h) {
      auto& memory = memory_[matrix];
      FEWBIT_TRY(from.codes[h], copy(from.codes[h], codes, memory[h]));
      FEWBIT_TRY(const std::uint8_t* const scales,
                 copy(reinterpret_cast<const std::uint8_t*>(parts.scales[h].data()),
                      2 * parts.scales[h].size(), memory[2 + h]));
      from.scales[h] = reinterpret_cast<const std::uint16_t*>(scales);
      if (parts.zeros[h].empty()) continue;
      FEWBIT_TRY(from.zeros[h], copy(parts.zeros[h].data(), parts.zeros[h].size(), memory[4 + h]));
    }
    const PackInt4Args args{.first = from, .count = 1, .to = reinterpret_cast<std::uint8_t*>(to)};
    return device::check(launch_pack_int4(format_of(problem_).int4, args, stream_.handle()),
                         problem_.where + ", packing an expert");
  }

  Result<void> pack_f8(const ExpertWeights& expert, int matrix, std::byte* to) {
    if (nan_.size() == 0) {
      FEWBIT_TRY(nan_, device::Buffer::allocate(sizeof(std::uint32_t), stream_));
      FEWBIT_TRY(device::fill(nan_.data(), 0, nan_.size(), stream_));
    }
    FEWBIT_TRY(F8Parts parts, f8_parts_of(problem_, expert, matrix));
    CudaF8Source& from = parts.source;
    for (int h = 0; h < 2; ++h) {
      auto& memory = memory_[matrix];
      const auto codes = static_cast<std::size_t>(from.rows * from.depth);
      FEWBIT_TRY(from.codes[h], copy(from.codes[h], codes, memory[h]));
      if (parts.scales[h].empty()) continue;
      FEWBIT_TRY(const std::uint8_t* const scales,
                 copy(reinterpret_cast<const std::uint8_t*>(parts.scales[h].data()),
                      sizeof(float) * parts.scales[h].size(), memory[2 + h]));
      from.scales[h] = reinterpret_cast<const float*>(scales);
    }
    const PackF8Args args{.first = from,
                          .count = 1,
                          .to = reinterpret_cast<std::uint8_t*>(to),
                          .nan = nan_.as<std::uint32_t>()};
    return device::check(launch_pack_f8(args, stream_.handle()),
                         problem_.where + ", packing an expert");
  }

  Result<const std::uint8_t*> copy(const std::uint8_t* from, std::size_t bytes,
                                   device::Buffer& to) const {
    if (to.size() < bytes) {
      FEWBIT_TRY(to, device::Buffer::allocate(bytes, stream_));
    }
    FEWBIT_TRY(device::copy_to_device(to.data(), std::as_bytes(std::span(from, bytes)), stream_));
    return static_cast<const std::uint8_t*>(to.as<std::uint8_t>());
  }

  const MoeProblem& problem_;
  const device::Stream& stream_;
  device::Buffer memory_[2][6];
  device::Buffer nan_;
};

}  // namespace

Result<std::unique_ptr<PreparedMoe>> open_moe(const MoeProblem& problem, const MoePlan& plan,
                                              PreparedMemory memory) {
  FEWBIT_TRY(const MoePlan own, plan_moe(problem));
  FEWBIT_TRY(check_same_plan(own, plan, problem.where));
  FEWBIT_TRY(check_memory(plan, memory, problem.where));
  FEWBIT_TRY(Filler filler, Filler::create(problem));
  const auto count = static_cast<std::size_t>(bias_count(problem));
  std::vector<float> biases(problem.biases ? count : std::size_t{0});
  std::vector<float> rows(has_row_scales(problem) ? count : std::size_t{0});
  for (std::int64_t e = 0; e < problem.num_experts; ++e) {
    const auto& shares = memory.experts[static_cast<std::size_t>(e)];
    const auto share = [&](const char* name) {
      return shares[static_cast<std::size_t>(plan.index(name))];
    };
    FEWBIT_TRY(device::copy_to_device(filler.gate_up(e), share("gate_up"), filler.stream()));
    FEWBIT_TRY(device::copy_to_device(filler.down(e), share("down"), filler.stream()));
    std::array<float, 3> globals{};
    std::memcpy(globals.data(), share("global_scales").data(), sizeof(globals));
    if (problem.biases) {
      std::memcpy(biases.data(), share("biases").data(), biases.size() * sizeof(float));
    }
    if (!rows.empty()) {
      std::memcpy(rows.data(), share("row_scales").data(), rows.size() * sizeof(float));
    }
    ScaleRange range;
    if (!format_of(problem).scaled_sums()) {
      range = {.least = static_cast<std::uint8_t>(share("scale_range")[0]),
               .most = static_cast<std::uint8_t>(share("scale_range")[1])};
    }
    filler.add(globals, rows, biases, range);
  }
  return filler.finish();
}

Result<std::unique_ptr<PreparedMoe>> prepare_on_device(const MoeProblem& problem,
                                                       const MoeWeights& weights) {
  FEWBIT_TRY(Filler filler, Filler::create(problem));
  ExpertPacker packer(problem, filler.stream());
  for (std::size_t e = 0; e < weights.experts.size(); ++e) {
    const ExpertWeights& expert = weights.experts[e];
    FEWBIT_TRY(packer.pack(expert, 0, filler.gate_up(static_cast<std::int64_t>(e))));
    FEWBIT_TRY(packer.pack(expert, 1, filler.down(static_cast<std::int64_t>(e))));
    std::vector<float> biases;
    if (problem.biases) {
      FEWBIT_TRY(biases, biases_of(problem, expert));
    }
    std::vector<float> rows;
    if (has_row_scales(problem)) {
      FEWBIT_TRY(rows, row_scales_of(expert));
    }
    FEWBIT_TRY(const auto globals, globals_of(expert));
    filler.add(globals, rows, biases,
               format_of(problem).scaled_sums() ? ScaleRange{} : scale_range(expert));
  }
  FEWBIT_TRY(packer.check());
  return filler.finish();
}

}  // namespace fewbit::cuda
