// SPDX-License-Identifier: Apache-2.0
// Dense layers of the backend cuda_moe against exact arithmetic. Needs a GPU; skipped where there
// is none.
#include <gtest/gtest.h>

#include "backends/cuda_moe/cuda_moe.hpp"
#include "backends/cuda_moe/grouped_plan.hpp"
#include "canonical/random_gguf_blocks.hpp"
#include "core/convert.hpp"
#include "device/canonical_layer.hpp"
#include "device/card_test.hpp"
#include "device/device_layer.hpp"
#include "device/moe_run.hpp"
#include "fewbit/linear.hpp"

namespace fewbit::cuda {
namespace {

struct DenseCase {
  CellFormat format;
  Dims size;
  DType out = DType::bf16;
  bool ordered = false;  // act-order
  ActivationType x_type = ActivationType::bf16;
};
DType dtype_of(ActivationType type) {
  return type == ActivationType::f16 ? DType::f16 : DType::bf16;
}

// One expert's down, and activations of the most tokens.
struct Dense {
  RandomLayer layer;
  QuantizedTensor weight;
  std::vector<std::uint16_t> x;
};

Dense dense_of(const DenseCase& c, std::int64_t tokens, std::uint64_t seed) {
  const StreamShape shape{.tokens = 0,
                          .top_k = 1,
                          .experts = 1,
                          .hidden_size = c.size.n,
                          .intermediate_size = c.size.k};
  Dense dense{.layer = random_layer(c.format, shape, seed), .weight = {}, .x = {}};
  if (c.ordered) add_orders(dense.layer, seed + 1);
  dense.layer.x_type = c.x_type;
  const auto encode = c.x_type == ActivationType::f16 ? f32_to_f16 : f32_to_bf16;
  dense.weight = matrix_of(dense.layer, 2, 0);
  for (std::int64_t i = 0; i < tokens * c.size.k; ++i) {
    const auto r = static_cast<float>(next_random(seed) >> 40) / float(1 << 24) - 0.5F;
    dense.x.push_back(encode(4 * r));
  }
  return dense;
}

class CudaLinearTest : public CardTest {
 protected:
  Result<LinearLayer> prepare(const DenseCase& c, const Dense& dense, std::int64_t tokens) {
    const LinearProblem problem{.n = c.size.n,
                                .k = c.size.k,
                                .weight = dense.weight.scheme,
                                .activation_dtype = dtype_of(c.x_type),
                                .output_dtype = c.out,
                                .max_tokens = tokens,
                                .where = "dense"};
    return LinearLayer::prepare(problem, dense.weight, device_, {}, *executor_);
  }

  // The first tokens' results, with a canary behind them.
  Result<std::vector<float>> run(const LinearLayer& linear, const Dense& dense,
                                 std::int64_t tokens) {
    const LinearProblem& problem = linear.problem();
    const auto size =
        static_cast<std::size_t>(tokens * problem.n * dtype_bits(problem.output_dtype) / 8);
    std::vector<std::byte> y(size + 64, std::byte{0x5A});
    FEWBIT_TRY(linear.run(tokens, view_of(problem, tokens, dense.x.data()),
                          std::span(y).first(size), {}, *executor_));
    for (std::size_t i = size; i < y.size(); ++i) EXPECT_EQ(y[i], std::byte{0x5A});
    std::vector<float> out(static_cast<std::size_t>(tokens * problem.n));
    FEWBIT_TRY(convert_to_f32(problem.output_dtype, std::span(y).first(size), out));
    return out;
  }

  static TensorView view_of(const LinearProblem& problem, std::int64_t tokens, const void* x) {
    const auto bytes = static_cast<std::size_t>(2 * tokens * problem.k);
    return {.dtype = problem.activation_dtype,
            .shape = {tokens, problem.k},
            .bytes = {static_cast<const std::byte*>(x), bytes},
            .device = {}};
  }

  std::unique_ptr<Executor> executor_ = make_thread_pool(2).value();
};

// |y - exact| <= k 2^-24 sum |w x| and one rounding of the result.
void expect_exact(const DenseCase& c, const Dense& dense, const std::vector<float>& y,
                  std::int64_t tokens, std::int64_t every) {
  const double unit = c.out == DType::bf16 ? 0x1p-8 : c.out == DType::f16 ? 0x1p-11 : 0x1p-24;
  std::vector<double> x(static_cast<std::size_t>(c.size.k));
  for (std::int64_t t = 0; t < tokens; t += every) {
    for (std::size_t k = 0; k < x.size(); ++k) {
      x[k] = dense.layer.number(dense.x[static_cast<std::size_t>(t) * x.size() + k]);
    }
    const std::vector<double> columns = dense.layer.ordered(2, 0, x);
    for (std::int64_t n = 0; n < c.size.n; ++n) {
      const RandomLayer::Dot dot = dense.layer.dot(2, 0, n, columns);
      const double sums = std::ldexp(static_cast<double>(c.size.k), -24) * dot.size;
      const double bound = sums + unit * (std::abs(dot.sum) + sums) + 0x1p-25;
      const double got = y[static_cast<std::size_t>(t * c.size.n + n)];
      ASSERT_LE(std::abs(got - dot.sum), bound)
          << "token " << t << " row " << n << " is " << got << ", exact " << dot.sum;
    }
  }
}

TEST_F(CudaLinearTest, EveryFormatShapeAndNumberOfTokensWithinTheBound) {
  std::size_t results = 0;
  for (const CellFormat& format : all_formats()) {
    for (const Dims size :
         {Dims{64, 64}, Dims{96, 160}, Dims{288, 320}, Dims{320, 192}, Dims{32, 448}}) {
      const DType out = std::array{DType::bf16, DType::f16, DType::f32}[results++ % 3];
      const DenseCase c{format, size, out};
      const Dense dense = dense_of(c, 2000, 5 + static_cast<std::uint64_t>(size.k));
      const Result<LinearLayer> linear = prepare(c, dense, 2000);
      ASSERT_OK(linear);
      for (const std::int64_t tokens : {1, 2, 3, 7, 8, 9, 17, 33, 64, 65, 129, 300, 2000}) {
        SCOPED_TRACE(testing::Message() << name_of(format) << " n " << size.n << " k " << size.k
                                        << " tokens " << tokens << " " << dtype_name(out));
        const auto y = run(*linear, dense, tokens);
        ASSERT_OK(y);
        expect_exact(c, dense, *y, tokens, tokens > 300 ? 97 : tokens > 60 ? 7 : 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaLinearTest, ActivationsInF16) {
  for (const CellFormat& format : all_formats()) {
    for (const bool ordered : {false, true}) {
      const bool orders = has_int_cells(format.kind) && format.ints.bits >= 4;
      if (!takes_f16(format.kind) || (ordered && !orders)) continue;
      const DType out = ordered ? DType::f32 : DType::f16;
      const DenseCase c{format, {320, 384}, out, ordered, ActivationType::f16};
      const Dense dense = dense_of(c, 2000, 51);
      const Result<LinearLayer> linear = prepare(c, dense, 2000);
      ASSERT_OK(linear);
      for (const std::int64_t tokens : {1, 9, 64, 300, 2000}) {
        SCOPED_TRACE(testing::Message() << name_of(format) << " tokens " << tokens);
        const auto y = run(*linear, dense, tokens);
        ASSERT_OK(y);
        expect_exact(c, dense, *y, tokens, tokens > 60 ? 97 : 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// NVFP4 and integers take rows and k that are no multiple of 32; only the streaming kernel runs
// them.
TEST_F(CudaLinearTest, SizesThatAreNoMultipleOf32) {
  for (const CellFormat& format : all_formats()) {
    if (format.kind != CellKind::nvfp4 && !has_int_cells(format.kind)) continue;
    const DenseCase c{format, {80, 112}, DType::f32};
    const Dense dense = dense_of(c, 100, 3);
    const Result<LinearLayer> linear = prepare(c, dense, 100);
    ASSERT_OK(linear);
    for (const std::int64_t tokens : {1, 5, 100}) {
      SCOPED_TRACE(testing::Message() << name_of(format) << " tokens " << tokens);
      const auto y = run(*linear, dense, tokens);
      ASSERT_OK(y);
      expect_exact(c, dense, *y, tokens, 3);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaLinearTest, ActOrder) {
  for (const CellFormat& format : all_formats()) {
    if (!has_int_cells(format.kind) || format.ints.bits < 4) continue;
    const DenseCase c{format, {320, 384}, DType::f32, true};
    const Dense dense = dense_of(c, 2000, 41);
    const Result<LinearLayer> linear = prepare(c, dense, 2000);
    ASSERT_OK(linear);
    for (const std::int64_t tokens : {1, 20, 2000}) {
      SCOPED_TRACE(testing::Message() << name_of(format) << " tokens " << tokens);
      const auto y = run(*linear, dense, tokens);
      ASSERT_OK(y);
      expect_exact(c, dense, *y, tokens, tokens > 300 ? 97 : 1);
      if (HasFatalFailure()) return;
    }
  }
}

// GGUF blocks as a file has them, against what they decode to.
TEST_F(CudaLinearTest, GgufBlocks) {
  for (const char* name : {"Q4_0", "Q8_0", "MXFP4", "NVFP4", "Q2_0", "PQ2_0", "TQ2_0"}) {
    std::mt19937 random(31);
    const Dims size{.n = 320, .k = 768};
    Dense dense = dense_of({nvfp4_cells, size}, 2000, 7);
    dense.weight = random_gguf_blocks(name, size.n, size.k, random, {.least = 110, .most = 130});
    std::vector<float> weights(static_cast<std::size_t>(size.n * size.k));
    ASSERT_OK(dequantize_rows(dense.weight, 0, weights));
    const Result<LinearLayer> linear = prepare({nvfp4_cells, size, DType::f32}, dense, 2000);
    ASSERT_OK(linear);
    for (const std::int64_t tokens : {1, 20, 2000}) {
      SCOPED_TRACE(testing::Message() << name << " tokens " << tokens);
      const auto y = run(*linear, dense, tokens);
      ASSERT_OK(y);
      for (std::int64_t i = 0; i < tokens * size.n; i += 37) {
        const auto row = static_cast<std::size_t>(i % size.n * size.k);
        const auto token = static_cast<std::size_t>(i / size.n * size.k);
        double sum = 0;
        double sizes = 0;
        for (std::size_t k = 0; k < static_cast<std::size_t>(size.k); ++k) {
          const double product = double{weights[row + k]} * double{bf16_to_f32(dense.x[token + k])};
          sum += product;
          sizes += std::abs(product);
        }
        const double got = (*y)[static_cast<std::size_t>(i)];
        const double bound = std::ldexp(static_cast<double>(size.k), -24) * sizes + 0x1p-25;
        ASSERT_LE(std::abs(got - sum), bound + 0x1p-24 * std::abs(sum)) << "result " << i;
      }
    }
  }
}

// Sizes of real layers; at k 25600 no activations fit a thread block, and one token goes through
// the grouped kernels too.
TEST_F(CudaLinearTest, LargeLayers) {
  for (const CellFormat& format : all_formats()) {
    for (const Dims size : {Dims{5120, 4096}, Dims{1024, 25600}}) {
      const DenseCase c{format, size, DType::bf16};
      const Dense dense = dense_of(c, 200, 17);
      const Result<LinearLayer> linear = prepare(c, dense, 200);
      ASSERT_OK(linear);
      for (const std::int64_t tokens : {1, 12, 200}) {
        SCOPED_TRACE(testing::Message() << name_of(format) << " n " << size.n << " k " << size.k
                                        << " tokens " << tokens);
        const auto y = run(*linear, dense, tokens);
        ASSERT_OK(y);
        expect_exact(c, dense, *y, tokens, 67);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// By stream and by graph, again and again, in scratch that begins as NaN: the same bits.
TEST_F(CudaLinearTest, ACallOnTheCardGivesTheSameBitsEveryTime) {
  for (const CellFormat& format :
       {all_formats()[0], all_formats()[2], all_formats()[6], all_formats()[9]}) {
    for (const std::int64_t tokens : {6, 1500}) {
      SCOPED_TRACE(testing::Message() << name_of(format) << " tokens " << tokens);
      const DenseCase c{format, {384, 512}, DType::f32};
      const Dense dense = dense_of(c, tokens, 29);
      const Result<LinearLayer> linear = prepare(c, dense, tokens);
      ASSERT_OK(linear);
      const auto from_host = run(*linear, dense, tokens);
      ASSERT_OK(from_host);
      const Result<device::Stream> stream = device::Stream::create();
      ASSERT_OK(stream);
      const auto x = upload(dense.x, *stream);
      ASSERT_OK(x);
      const std::uint64_t bytes = linear->device_workspace_bytes(tokens).value();
      const auto workspace = device::Buffer::allocate(bytes + 1024, *stream);
      ASSERT_OK(workspace);
      const auto y = device::Buffer::allocate(from_host->size() * sizeof(float), *stream);
      ASSERT_OK(y);
      const auto past = reinterpret_cast<std::uintptr_t>(workspace->data()) % 1024;
      std::byte* const begin = workspace->data() + (past == 0 ? 0 : 1024 - past);
      TensorView view = view_of(linear->problem(), tokens, x->data());
      view.device.kind = DeviceKind::cuda;
      const auto call = [&] {
        return linear->run(tokens, view, {y->data(), y->size()}, {begin, bytes}, *executor_,
                           stream->handle());
      };
      const Result<device::Graph> graph = device::Graph::record(*stream, call);
      ASSERT_OK(graph);
      for (int i = 0; i < 200; ++i) {
        ASSERT_OK(device::fill(begin, 0xFF, bytes, *stream));
        ASSERT_OK(device::fill(y->data(), 0xFF, y->size(), *stream));
        ASSERT_OK(i % 2 == 0 ? call() : graph->launch(*stream));
        std::vector<float> out(from_host->size());
        ASSERT_OK(device::copy_to_host(std::as_writable_bytes(std::span(out)), y->data(), *stream));
        ASSERT_OK(stream->synchronize());
        ASSERT_EQ(out, *from_host) << "call " << i;
      }
    }
  }
}

}  // namespace
}  // namespace fewbit::cuda
