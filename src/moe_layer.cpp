// SPDX-License-Identifier: Apache-2.0
#include "fewbit/moe.hpp"
