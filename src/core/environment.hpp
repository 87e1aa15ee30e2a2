// SPDX-License-Identifier: Apache-2.0
// The environment variables of fewbit, read here and nowhere else.
#pragma once

#include <optional>
#include <string>

namespace fewbit {

// Unset and empty variables are empty optionals. Who uses a value checks it.
struct Environment {
  std::optional<std::string> isa;      // FEWBIT_ISA: cap of the instruction set
  std::optional<std::string> backend;  // FEWBIT_BACKEND: forced backend
  std::optional<std::string> threads;  // FEWBIT_THREADS
};

// get: as std::getenv.
using GetVariable = const char* (*)(const char* name);
Environment read_environment(GetVariable get);

// Of this process, read at the first call.
const Environment& environment();

}  // namespace fewbit
