// SPDX-License-Identifier: Apache-2.0
#include "core/ascii.hpp"
#include "core/device_info.hpp"
#include "device/device.hpp"

namespace fewbit {

Result<DeviceInfo> describe_device(std::string_view text) {
  if (lower_ascii(text) == "cuda") {
    FEWBIT_TRY(const int cards, device::count());
    if (cards == 0) {
      return Error{ErrorCode::unsupported,
                   "there is no CUDA device here: no card, or no driver for it", "device cuda"};
    }
    return device::info(0);
  }
  FEWBIT_TRY(DeviceInfo device, describe_known_device(text));
  if (device.kind == DeviceKind::cuda) device.built_for = device::built_for();
  return device;
}

}  // namespace fewbit
