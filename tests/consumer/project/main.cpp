// SPDX-License-Identifier: Apache-2.0
// Reads a checkpoint, gathers a layer's experts and prints what they are.
#include <cstdio>
#include <fewbit/fewbit.hpp>

namespace {
int fail(const fewbit::Error& error) {
  std::fprintf(stderr, "%s\n", error.message().c_str());
  return 1;
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto checkpoint = fewbit::Checkpoint::open(argv[1]);
  if (!checkpoint) return fail(checkpoint.error());
  auto identified = fewbit::identify(*checkpoint);
  if (!identified) return fail(identified.error());
  auto weights = fewbit::gather_moe(*checkpoint, *identified, 0);
  if (!weights) return fail(weights.error());
  std::printf("%zu modules, %zu experts\n", identified->modules.size(), weights->experts.size());
}
