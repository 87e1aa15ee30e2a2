// SPDX-License-Identifier: Apache-2.0
// Every conversion gives the same bits on the GPU as on the host: all codes, and 2^24 f32 patterns
// over all exponents. Prints a line a function. Exit 0: all equal; 1: a difference or a CUDA error;
// 77: no GPU here.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/float_convert.hpp"

namespace fewbit {
namespace {

constexpr std::uint32_t f32_patterns = 1U << 24;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// The i-th f32 input: the high 24 bits count, the low 8 vary (0, 1, 255 and 128 among them).
constexpr FEWBIT_HD float f32_input(std::uint32_t i) {
  const std::uint32_t low = (i % 4U) == 0U   ? 0U
                            : (i % 4U) == 1U ? (i * 0x9e3779b1U) >> 24
                            : (i % 4U) == 2U ? 1U
                                             : 255U;
  return float_bits::to_f32(i << 8 | low);
}

// Both directions as "i-th input to 32 bits".
template <class Code, float (*decode)(Code)>
struct Decode {
  static constexpr std::uint32_t inputs = 1U << (8U * sizeof(Code));
  static constexpr FEWBIT_HD std::uint32_t result(std::uint32_t i) {
    return float_bits::of(decode(static_cast<Code>(i)));
  }
};
template <class Code, Code (*encode)(float)>
struct Encode {
  static constexpr std::uint32_t inputs = f32_patterns;
  static constexpr FEWBIT_HD std::uint32_t result(std::uint32_t i) { return encode(f32_input(i)); }
};
struct DecodeIq4Nl {
  static constexpr std::uint32_t inputs = 256;
  static constexpr FEWBIT_HD std::uint32_t result(std::uint32_t i) {
    return static_cast<std::uint8_t>(iq4_nl_to_i8(static_cast<std::uint8_t>(i)));
  }
};

template <class Conversion>
__global__ void convert_all(std::uint32_t* results) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < Conversion::inputs) results[i] = Conversion::result(i);
}

// Number of inputs whose result differs from the host's.
template <class Conversion>
std::uint32_t differences(const char* name, std::uint32_t* on_device) {
  convert_all<Conversion><<<(Conversion::inputs + 255U) / 256U, 256>>>(on_device);
  check(cudaGetLastError(), name);
  std::vector<std::uint32_t> results(Conversion::inputs);
  check(cudaMemcpy(results.data(), on_device, results.size() * sizeof(std::uint32_t),
                   cudaMemcpyDeviceToHost),
        name);
  std::uint32_t different = 0;
  for (std::uint32_t i = 0; i < Conversion::inputs; ++i) {
    const std::uint32_t host = Conversion::result(i);
    if (results[i] == host) continue;
    if (different++ == 0) {
      std::printf("%s: input %u gives 0x%08x on the device, 0x%08x on the host\n", name, i,
                  results[i], host);
    }
  }
  std::printf("%-28s %9u inputs %9u differences\n", name, Conversion::inputs, different);
  return different;
}

std::uint32_t compare_decoders(std::uint32_t* memory) {
  using U8 = std::uint8_t;
  using U16 = std::uint16_t;
  std::uint32_t different = 0;
  different += differences<Decode<U16, bf16_to_f32>>("bf16_to_f32", memory);
  different += differences<Decode<U16, f16_to_f32>>("f16_to_f32", memory);
  different += differences<Decode<U8, f8_e4m3_to_f32>>("f8_e4m3_to_f32", memory);
  different += differences<Decode<U8, f8_e5m2_to_f32>>("f8_e5m2_to_f32", memory);
  different += differences<Decode<U8, f8_e8m0_to_f32>>("f8_e8m0_to_f32", memory);
  different += differences<Decode<U8, f8_e4m3fnuz_to_f32>>("f8_e4m3fnuz_to_f32", memory);
  different += differences<Decode<U8, f8_e5m2fnuz_to_f32>>("f8_e5m2fnuz_to_f32", memory);
  different += differences<Decode<U8, f8_e5m3_to_f32>>("f8_e5m3_to_f32", memory);
  different += differences<Decode<U8, f8_ue4m3_to_f32>>("f8_ue4m3_to_f32", memory);
  different += differences<Decode<U8, f6_e3m2_to_f32>>("f6_e3m2_to_f32", memory);
  different += differences<Decode<U8, f6_e2m3_to_f32>>("f6_e2m3_to_f32", memory);
  different += differences<Decode<U8, f4_e2m1_to_f32>>("f4_e2m1_to_f32", memory);
  different += differences<Decode<U8, nf3_to_f32>>("nf3_to_f32", memory);
  different += differences<Decode<U8, nf4_to_f32>>("nf4_to_f32", memory);
  different += differences<DecodeIq4Nl>("iq4_nl_to_i8", memory);
  return different;
}

std::uint32_t compare_encoders(std::uint32_t* memory) {
  using U8 = std::uint8_t;
  using U16 = std::uint16_t;
  std::uint32_t different = 0;
  different += differences<Encode<U16, f32_to_bf16>>("f32_to_bf16", memory);
  different += differences<Encode<U16, f32_to_f16>>("f32_to_f16", memory);
  different += differences<Encode<U8, f32_to_f8_e4m3>>("f32_to_f8_e4m3", memory);
  different += differences<Encode<U8, f32_to_f8_e4m3_sat>>("f32_to_f8_e4m3_sat", memory);
  different += differences<Encode<U8, f32_to_f8_e5m2>>("f32_to_f8_e5m2", memory);
  different += differences<Encode<U8, f32_to_f8_e5m2_sat>>("f32_to_f8_e5m2_sat", memory);
  different += differences<Encode<U8, f32_to_f8_e8m0>>("f32_to_f8_e8m0", memory);
  different += differences<Encode<U8, f32_to_f8_e8m0_floor>>("f32_to_f8_e8m0_floor", memory);
  different += differences<Encode<U8, f32_to_f8_e8m0_ceil>>("f32_to_f8_e8m0_ceil", memory);
  different += differences<Encode<U8, f32_to_f8_e4m3fnuz>>("f32_to_f8_e4m3fnuz", memory);
  different += differences<Encode<U8, f32_to_f8_e4m3fnuz_sat>>("f32_to_f8_e4m3fnuz_sat", memory);
  different += differences<Encode<U8, f32_to_f8_e5m2fnuz>>("f32_to_f8_e5m2fnuz", memory);
  different += differences<Encode<U8, f32_to_f8_e5m2fnuz_sat>>("f32_to_f8_e5m2fnuz_sat", memory);
  different += differences<Encode<U8, f32_to_f8_e5m3>>("f32_to_f8_e5m3", memory);
  different += differences<Encode<U8, f32_to_f8_ue4m3>>("f32_to_f8_ue4m3", memory);
  different += differences<Encode<U8, f32_to_f6_e3m2>>("f32_to_f6_e3m2", memory);
  different += differences<Encode<U8, f32_to_f6_e2m3>>("f32_to_f6_e2m3", memory);
  different += differences<Encode<U8, f32_to_f4_e2m1>>("f32_to_f4_e2m1", memory);
  different +=
      differences<Encode<U8, f32_to_f4_e2m1_signed_zero>>("f32_to_f4_e2m1_signed_zero", memory);
  different +=
      differences<Encode<U8, f32_to_f4_e2m1_ties_down>>("f32_to_f4_e2m1_ties_down", memory);
  different += differences<Encode<U8, f32_to_nf3>>("f32_to_nf3", memory);
  different += differences<Encode<U8, f32_to_nf4>>("f32_to_nf4", memory);
  different += differences<Encode<U8, f32_to_iq4_nl>>("f32_to_iq4_nl", memory);
  return different;
}

int compare_all() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device\n");
    return 77;
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "device");
  std::printf("%s, sm_%d%d\n", properties.name, properties.major, properties.minor);
  std::uint32_t* memory = nullptr;
  check(cudaMalloc(&memory, f32_patterns * sizeof(std::uint32_t)), "memory");
  const std::uint32_t different = compare_decoders(memory) + compare_encoders(memory);
  check(cudaFree(memory), "memory");
  std::printf("%u differences in all\n", different);
  return different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace fewbit

int main() { return fewbit::compare_all(); }
