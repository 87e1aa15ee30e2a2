// SPDX-License-Identifier: Apache-2.0
// fewbit backends: what this binary holds and what can run here.
#include <fmt/format.h>

#include <memory>

#include "command.hpp"
#include "table.hpp"

namespace fewbit::cli {
namespace {

struct Options : CommonOptions {
  std::string device = "cpu";
};

Result<int> run_backends(const Options& options) {
  FEWBIT_TRY(const DeviceInfo device, describe_device(options.device));
  const std::vector<BackendDescription> list = list_backends(device);
  if (options.json) {
    Json rows{Json::Array{}};
    for (const BackendDescription& backend : list) {
      Json row;
      row.set("name", backend.name);
      row.set("summary", backend.summary);
      row.set("layout", backend.layout);
      row.set("built", backend.built);
      row.set("usable", backend.usable);
      rows.push_back(row);
    }
    print_json(rows);
    return exit_fine;
  }
  Table table({Align::left, Align::left, Align::left, Align::left, Align::left});
  table.add({"backend", "built", "usable", "layout", "summary"});
  for (const BackendDescription& backend : list) {
    table.add({backend.name, backend.built ? "yes" : "no", backend.usable ? "yes" : "no",
               backend.layout, backend.summary});
  }
  print_out("in order of preference, on {} ({}):\n{}", options.device, device.name, table.text());
  return exit_fine;
}

}  // namespace

void add_backends(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("backends", "The backends of this binary, best first");
  command->add_option("--device", options->device, "Device to ask for: cpu, cpu:avx2 …");
  add_json_option(*command, *options);
  command->footer("Examples:\n  fewbit backends\n  fewbit backends --device cpu:generic");
  set_body(*command, *options, exit_code, [options] { return run_backends(*options); });
}

}  // namespace fewbit::cli
