// SPDX-License-Identifier: Apache-2.0
// fewbit backends: what this binary holds and what can run here.
#include <fmt/format.h>

#include <memory>

#include "command.hpp"
#include "core/environment.hpp"
#include "problem_options.hpp"
#include "table.hpp"

namespace fewbit::cli {
namespace {

struct Options : CommonOptions {
  DeviceOption device;
  bool foreign = false;
};

std::vector<BackendDescription> backends_for(const Options& options, const DeviceInfo& device) {
  if (!options.foreign) return list_backends(device);
  std::vector<BackendDescription> list;
  for (const Engine engine : {Engine::vllm, Engine::sglang, Engine::flashinfer}) {
    for (BackendDescription& backend : list_backends(device, engine)) {
      list.push_back(std::move(backend));
    }
  }
  return list;
}

// None where nothing is prepared for it.
std::vector<std::string> layout_names(const BackendDescription& backend) {
  std::vector<std::string> names;
  if (!backend.preparable) return names;
  constexpr std::string_view between = ", ";
  std::string_view rest = backend.layout;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(between), rest.size());
    names.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + between.size(), rest.size()));
  }
  return names;
}

// Layouts of codes by name; how many others hold their scales and zero points.
std::string layouts_in_short(const BackendDescription& backend) {
  std::string text;
  std::size_t companions = 0;
  for (const std::string& name : layout_names(backend)) {
    if (name.ends_with("_scales") || name.ends_with("_zero_points")) {
      ++companions;
    } else {
      text += (text.empty() ? "" : ", ") + name;
    }
  }
  if (text.empty() || companions == 0) return backend.layout;
  return fmt::format("{}; {} of their scales and zero points", text, companions);
}

void print_foreign(const std::vector<BackendDescription>& list, const DeviceInfo& device) {
  Table table({Align::left, Align::left, Align::left, Align::left, Align::left});
  table.add({"backend", "engine", "usable", "summary", "layouts"});
  for (const BackendDescription& backend : list) {
    table.add({backend.name, engine_name(backend.engine), backend.usable ? "yes" : "no",
               backend.summary, layouts_in_short(backend)});
  }
  print_out("of other engines, not run here, on {}:\n{}", device.name, Lines{table.text()});
}

Result<int> run_backends(const Options& options) {
  FEWBIT_TRY(const DeviceInfo device, describe_device(options.device.text));
  const std::vector<BackendDescription> list = backends_for(options, device);
  if (options.json) {
    Json rows{Json::Array{}};
    for (const BackendDescription& backend : list) {
      Json row;
      row.set("name", backend.name);
      row.set("summary", backend.summary);
      row.set("layout", backend.layout);
      row.set("layouts", list_json(layout_names(backend)));
      row.set("built", backend.built);
      row.set("usable", backend.usable);
      row.set("engine", engine_name(backend.engine));
      row.set("runs_here", backend.engine == Engine::fewbit);
      rows.push_back(row);
    }
    print_json(rows);
    return exit_fine;
  }
  if (options.foreign) {
    print_foreign(list, device);
    return exit_fine;
  }
  Table table({Align::left, Align::left, Align::left, Align::left, Align::left});
  table.add({"backend", "built", "usable", "summary", "layouts"});
  for (const BackendDescription& backend : list) {
    table.add({backend.name, backend.built ? "yes" : "no", backend.usable ? "yes" : "no",
               backend.summary, layouts_in_short(backend)});
  }
  print_out("in order of preference, on {} ({}):\n{}", options.device.text, device.name,
            Lines{table.text()});
  if (const auto& forced = environment().backend) {
    print_out("FEWBIT_BACKEND forces {}: used or refused\n", *forced);
  }
  return exit_fine;
}

}  // namespace

void add_backends(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("backends", "The backends of this binary, best first");
  add_device_option(*command, options->device);
  command->add_flag("--foreign", options->foreign,
                    "Those of vLLM, SGLang and FlashInfer, which fewbit knows but does not run");
  add_json_option(*command, *options);
  command->footer(
      "Usable: on that machine, whatever the layer. Layouts are what `prepare --backend NAME` can\n"
      "write, as its output and `inspect` of a prepared model name them (docs/backends.md); "
      "--json\n"
      "lists them all.\n"
      "Examples:\n  fewbit backends\n  fewbit backends --device cpu:generic\n"
      "  fewbit backends --foreign --device sm_90");
  set_body(*command, *options, exit_code, [options] { return run_backends(*options); });
}

}  // namespace fewbit::cli
