// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace fewbit {

// How integer codes lie in 32-bit words.
enum class WordSource {
  gptq,  // words of consecutive k (GptqWords); zero points in words of consecutive n (ColumnWords)
  awq,   // words of consecutive n in AWQ's order (AwqWords), zero points too
};

}  // namespace fewbit
