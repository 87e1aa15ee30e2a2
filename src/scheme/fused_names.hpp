// SPDX-License-Identifier: Apache-2.0
// Projections that some programs hold as one matrix and others as several: configs and files name
// either.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fewbit {

// Parts of a fused projection, by its last name component: "qkv_proj" -> q_proj, k_proj, v_proj;
// "in_proj_qkvz" -> in_proj_qkv, in_proj_z. Empty: no fused projection that is known.
std::vector<std::string> fused_parts(std::string_view component);

// The other way: fused projections that a part belongs to.
std::vector<std::string> fused_names_of(std::string_view component);

// "experts.0.w1" <-> "experts.0.gate_proj", and so for w2, w3 and w13; empty for all others.
std::string other_spelling(std::string_view module);

// A name without the wrappers' prefixes "model." and "language_model.", in any order: configs and
// files differ in them.
std::string_view without_wrapper_prefix(std::string_view module);
// The name under each of the prefixes that are seen.
std::vector<std::string> with_wrapper_prefixes(std::string_view module);
// A name without a wrapper's last component: "q_proj.linear" -> "q_proj".
std::string_view without_wrapper_suffix(std::string_view module);

// "a.b.c", "d" -> "a.b.d".
std::string with_last_component(std::string_view module, std::string_view component);

}  // namespace fewbit
