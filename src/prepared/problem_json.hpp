// SPDX-License-Identifier: Apache-2.0
// A layer's problem and plan as JSON and back, exactly: floats as their bits.
#pragma once

#include "fewbit/selection.hpp"
#include "prepared/json_fields.hpp"
#include "select/moe_plan.hpp"

namespace fewbit {

Json scheme_json(const Scheme& scheme);
Result<Scheme> parse_scheme(const JsonFields& fields);

Json problem_json(const MoeProblem& problem);
Result<MoeProblem> parse_problem(const JsonFields& fields);

Json plan_json(const MoePlan& plan);
// Buffers are added one by one, so that all sizes are checked.
Result<MoePlan> parse_plan(const JsonFields& fields, std::int64_t experts);

}  // namespace fewbit
