// SPDX-License-Identifier: Apache-2.0
// What the kernels read for a scheme of weights, and why they read others not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fewbit/selection.hpp"
#include "kernels/cpu/lane16.hpp"

namespace fewbit::cpu {

// Of packed weights; 16 and 32-bit ones are read in place and have none.
struct WeightForm {
  Lane16Codes codes = Lane16Codes::nvfp4;
  Lane16Scale scale = Lane16Scale::f8_e4m3;
  DType scale_dtype = DType::f8_e4m3;  // of the canonical matrix
  std::int64_t scale_rows = 1;         // rows that share one: 1, a multiple of 16, or 0 for all
  std::int64_t group = 0;              // k that share one; 0: all
  bool offset_codes = false;
  bool zeros = false;
  bool ordered = false;  // columns are packed in the order of their groups (act-order)

  // In blocks of GGUF as they are, only 16 rows together: no parts beside them.
  bool in_blocks() const { return lane16_in_blocks(codes); }
  int code_bits() const { return lane16_code_bits(codes); }
  std::int64_t groups(std::int64_t k) const { return group == 0 ? 1 : (k + group - 1) / group; }
  std::int64_t group_of(std::int64_t k) const { return group == 0 ? k : group; }
};

// Blocks of GGUF that keep their values with codes and scales apart are read in that scheme
// (canonical/gguf_exact.hpp); others as they are.
Scheme read_as(const Scheme& scheme);
// Empty: read in place, or not at all (form_refusals says why).
std::optional<WeightForm> form_of(const Scheme& scheme);

// The forms that kernels take, as refusals name them.
inline constexpr const char* all_forms =
    "in bf16, f16, f32, GGUF's Q4_K or Q6_K, or e2m1, nf3, u2, int4, int8 or e4m3 with scales";
inline constexpr const char* tile_forms = "in e2m1, u2, int4, int8 or e4m3 with scales";  // AMX's
// Every unmet need of a matrix. which: "gate and up"; k_name: what its k is called; taken: the
// forms that are named where it has another.
void form_refusals(const std::string& which, const Scheme& scheme, const std::string& k_name,
                   std::int64_t k, std::vector<Refusal>& refusals, const char* taken);

// Layout of the codes: "cpu_f4_lane16", "row_major".
const char* layout_name(const Scheme& scheme);

}  // namespace fewbit::cpu
