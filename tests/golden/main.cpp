// SPDX-License-Identifier: Apache-2.0
// fewbit_golden DIR [--op NAME] [--verbose]: runs every case of a golden set through the library.
// Exit 0: no case failed and at least one ran; 1: a failure, or nothing ran; 2: usage.
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "golden/case.hpp"

namespace fewbit::golden {
namespace {

struct Tally {
  int passed = 0;
  int failed = 0;
  int unsupported = 0;
};

const Op* find_op(std::string_view name) {
  for (const Op& op : all_ops()) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

// The reason for a failure; empty when every output agrees.
std::string run_case(const Op& op, const GoldenCase& c) {
  const Result<Outputs> outputs = op.run(c);
  if (!outputs) return outputs.error().message();
  for (const auto& [role, unused] : c.outputs) {
    const Comparison comparison = compare_output(c, role, *outputs);
    if (!comparison.passed) return role + ": " + comparison.detail;
  }
  return "";
}

void count_case(const GoldenCase& c, bool verbose, Tally& tally) {
  const Op* op = find_op(c.op);
  if (op == nullptr) {
    ++tally.unsupported;
    return;
  }
  const std::string failure = run_case(*op, c);
  if (failure.empty()) {
    ++tally.passed;
    if (verbose) std::printf("passed  %s\n", c.name.c_str());
  } else {
    ++tally.failed;
    std::printf("FAILED  %s (%s): %s\n", c.name.c_str(), c.op.c_str(), failure.c_str());
  }
}

int report(const std::string& name, const std::map<std::string, Tally>& tallies) {
  Tally sum;
  std::printf("%-44s %7s %7s %18s\n", "operation", "passed", "failed", "not supported yet");
  for (const auto& [op, t] : tallies) {
    std::printf("%-44s %7d %7d %18d\n", op.c_str(), t.passed, t.failed, t.unsupported);
    sum.passed += t.passed;
    sum.failed += t.failed;
    sum.unsupported += t.unsupported;
  }
  std::printf("golden set '%s': %d passed, %d failed, %d not supported yet\n", name.c_str(),
              sum.passed, sum.failed, sum.unsupported);
  return sum.failed == 0 && sum.passed > 0 ? 0 : 1;
}

int run(const std::string& directory, const std::string& only, bool verbose) {
  const auto set = load_golden_set(directory);
  if (!set) {
    std::fprintf(stderr, "error: %s\n", set.error().message().c_str());
    return 1;
  }
  std::map<std::string, Tally> tallies;
  for (const GoldenCase& c : (*set)->cases) {
    if (only.empty() || c.op == only) count_case(c, verbose, tallies[c.op]);
  }
  return report((*set)->name, tallies);
}

}  // namespace
}  // namespace fewbit::golden

int main(int argc, char** argv) {
  std::string directory;
  std::string only;
  bool verbose = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--op") == 0 && i + 1 < argc) {
      only = argv[++i];
    } else if (std::strcmp(argv[i], "--verbose") == 0) {
      verbose = true;
    } else if (directory.empty() && argv[i][0] != '-') {
      directory = argv[i];
    } else {
      std::fprintf(stderr, "usage: fewbit_golden DIR [--op NAME] [--verbose]\n");
      return 2;
    }
  }
  if (directory.empty()) {
    std::fprintf(stderr, "usage: fewbit_golden DIR [--op NAME] [--verbose]\n");
    return 2;
  }
  return fewbit::golden::run(directory, only, verbose);
}
