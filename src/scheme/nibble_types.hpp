// SPDX-License-Identifier: Apache-2.0
// What configs say of codes of 4 bits in bytes. AutoRound writes MXFP4 and mx_int4 into the same
// tensors, so that nothing but its data_type tells which of them is there.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheme/declared.hpp"
#include "scheme/integer_config.hpp"

namespace fewbit {

enum class NibbleCodes {
  untold,
  floats,    // e2m1
  quarters,  // mx_int4: a sign and a magnitude of quarters
};
// AutoRound's data_type in lower case: "mx_fp", "nv_fp4_with_static_gs", "mx_int4"; untold:
// another.
NibbleCodes nibble_codes(std::string_view data_type);

class NibbleTypes {
 public:
  explicit NibbleTypes(const Declared& declared);

  struct Verdict {
    NibbleCodes codes = NibbleCodes::untold;
    bool e5m3 = false;  // whether scales in bytes for groups of 16 are AutoRound's second version
    std::string says;   // what the config says, where that tells nothing
  };
  // `group`: what compressed-tensors' own groups say of the module.
  Verdict of(const std::string& module, NibbleCodes group) const;
  // The data_type of a module and whose it is; both empty where none is stated.
  std::pair<std::string, std::string> type_of(const std::string& module) const;

 private:
  std::vector<IntegerConfig> configs_;  // AutoRound's keys, in whose block ever
  bool silent_ = true;                  // no block that could say so
  std::string mixed_;                   // types of both kinds in one checkpoint
};

}  // namespace fewbit
