// SPDX-License-Identifier: Apache-2.0
#include "core/environment.hpp"

#include <cstdlib>

#include "core/ascii.hpp"

namespace fewbit {
namespace {

std::optional<std::string> variable(GetVariable get, const char* name) {
  const char* value = get(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

}  // namespace

Environment read_environment(GetVariable get) {
  Environment result;
  result.isa = variable(get, "FEWBIT_ISA");
  result.backend = variable(get, "FEWBIT_BACKEND");
  if (result.backend) result.backend = lower_ascii(*result.backend);  // as --backend
  result.threads = variable(get, "FEWBIT_THREADS");
  return result;
}

const Environment& environment() {
  static const Environment result =
      read_environment([](const char* name) -> const char* { return std::getenv(name); });
  return result;
}

}  // namespace fewbit
