// SPDX-License-Identifier: Apache-2.0
#include "core/ascii.hpp"
#include "core/device_info.hpp"
#include "device/device.hpp"

namespace fewbit {
namespace {

// With what the binary holds for CPUs; what it holds for cards is added by the caller.
Result<DeviceInfo> first_card() {
  constexpr const char* where = "device cuda";
  const Result<int> cards = device::count();
  if (!cards) return Error{cards.error().code, cards.error().what, where};
  if (*cards == 0) {
    return Error{ErrorCode::unsupported,
                 "there is no CUDA device here: no card, or no driver for it", where};
  }
  FEWBIT_TRY(const DeviceInfo any_cpu, describe_known_device("cpu:generic"));
  FEWBIT_TRY(DeviceInfo card, device::info(0));
  card.built_for = any_cpu.built_for;
  return card;
}

}  // namespace

Result<DeviceInfo> describe_device(std::string_view text) {
  FEWBIT_TRY(DeviceInfo device,
             lower_ascii(text) == "cuda" ? first_card() : describe_known_device(text));
  for (std::string& name : device::built_for()) device.built_for.push_back(std::move(name));
  return device;
}

}  // namespace fewbit
