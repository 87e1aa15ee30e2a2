// SPDX-License-Identifier: Apache-2.0
// Selection for dense layers, and what both kinds of layers share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fewbit/linear.hpp"
#include "fewbit/selection.hpp"
#include "select/backend.hpp"

namespace fewbit {

// A backend's own refusals, and one when this binary holds no code for it; of a described device
// only its own: what is asked there is no matter of this binary.
std::vector<Refusal> refusals_of(const Backend& backend, const MoeProblem& problem,
                                 const DeviceInfo& device);
std::vector<Refusal> refusals_of(const Backend& backend, const LinearProblem& problem,
                                 const DeviceInfo& device);

// "isa: needs avx512, has avx2; shape: needs hidden_size % 16 = 0, has 2050"
std::string refusals_text(const std::vector<Refusal>& refusals);

// "none of the 2 backends of SGLang described here can run it": an engine may have others.
std::string none_of_them_text(const Selection& selection);

// The row of a backend; nullptr: there is none, as of nothing chosen.
const Candidate* find_candidate(const Selection& selection, std::string_view backend);

// What this binary lacks to run a backend on a device that is only asked about: "needs code for
// sm_90a, has generic, avx2"; empty: nothing.
std::string unbuilt_text(const Backend& backend, const DeviceInfo& device);

// What is wrong with the name of a forced backend: it runs elsewhere, or nobody knows it; with the
// known ones.
Error unknown_backend(Engine engine, const std::string& name, const std::string& where);

// FEWBIT_BACKEND names no backend that runs here: an error as select_backend's.
Result<void> check_backend_variable();

// As select_backend, with `chosen` empty when no backend can run it: the table is complete anyway.
// Error invalid_argument: a problem that makes no sense.
Result<Selection> examine_backends(const MoeProblem& problem, const DeviceInfo& device,
                                   Engine engine = Engine::fewbit);

// The choice among candidates that were examined. Errors as select_backend's.
Result<Selection> choose_backend(Selection examined, const MoeProblem& problem,
                                 const SelectOptions& options);

// The same of a layer that is spread over ranks: what any rank's share refuses, with the features
// dealt as each backend needs (rank_problem.hpp); decide_layer.hpp chooses. Errors: as
// examine_backends; invalid_argument: sizes that can't be dealt to so many ranks.
Result<Selection> examine_spread(const MoeProblem& whole, const Parallel& parallel,
                                 const DeviceInfo& device, Engine engine);

// As select_backend.
Result<Selection> select_linear_backend(const LinearProblem& problem, const DeviceInfo& device,
                                        const SelectOptions& options);

// The selected backend, asked once more, by what running needs: code in this binary, and a GPU that
// is here. A selection made for another problem or device is refused.
// Errors: invalid_argument (unknown name), unsupported (its refusals).
Result<const Backend*> selected_backend(const Selection& selection, const MoeProblem& problem,
                                        const DeviceInfo& device);
Result<const Backend*> selected_backend(const Selection& selection, const LinearProblem& problem,
                                        const DeviceInfo& device);

}  // namespace fewbit
