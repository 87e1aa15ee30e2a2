// SPDX-License-Identifier: Apache-2.0
#include "fewbit/linear.hpp"
#include "fewbit/fewbit.hpp"
#include "checkpoint/json.hpp"
#include "select/backend.hpp"
