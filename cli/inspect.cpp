// SPDX-License-Identifier: Apache-2.0
// fewbit inspect DIR [NAME]: modules with roles and schemes, or one tensor with its statistics.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "command.hpp"
#include "core/counted.hpp"
#include "inventory.hpp"
#include "prepared_page.hpp"
#include "scheme/module_match.hpp"
#include "scheme/name_parts.hpp"
#include "table.hpp"
#include "tensor_stats.hpp"

namespace fewbit::cli {
namespace {

struct Options : CommonOptions {
  std::string path;
  std::string name;
};

Json module_json(const Checkpoint& checkpoint, const Module& module) {
  Json parts{Json::Array{}};
  for (const Module::Part& part : module.parts) {
    const TensorInfo* info = checkpoint.find(part.tensor);
    if (info == nullptr) continue;
    Json entry;
    entry.set("tensor", part.tensor);
    entry.set("dtype", stored_type_name(*info));
    Json shape{Json::Array{}};
    for (const std::int64_t d : shape_in_elements(*info)) shape.push_back(d);
    entry.set("shape", shape);
    entry.set("bytes", info->bytes);
    parts.push_back(entry);
  }
  Json out;
  out.set("name", module.name);
  out.set("role", role_name(module.role));
  out.set("layer", module.layer);
  out.set("expert", module.expert);
  out.set("n", module.n);
  out.set("k", module.k);
  out.set("producer", producer_name(module.scheme.producer));
  out.set("scheme", scheme_text(module.scheme));
  out.set("unreadable", module.unreadable);
  out.set("evidence", module.evidence);
  out.set("tensors", parts);
  return out;
}

void print_module(const Checkpoint& checkpoint, const Module& module) {
  Table table({Align::left, Align::left});
  table.add({"module", module.name});
  table.add(
      {"role", fmt::format("{}{}{}", role_name(module.role),
                           module.layer >= 0 ? fmt::format(", layer {}", module.layer) : "",
                           module.expert >= 0 ? fmt::format(", expert {}", module.expert) : "")});
  table.add({"scheme", module.unreadable.empty() ? scheme_text(module.scheme) : module.unreadable});
  table.add({"evidence", module.evidence});
  for (const Module::Part& part : module.parts) {
    const TensorInfo* info = checkpoint.find(part.tensor);
    if (info == nullptr) continue;
    table.add(
        {part.suffix, fmt::format("{} {}  {}", stored_type_name(*info),
                                  shape_text(shape_in_elements(*info)), bytes_text(info->bytes))});
  }
  print_out("{}", Lines{table.text(0)});
}

// Numbers in a name count as numbers: expert 2 before expert 10.
bool reads_before(std::string_view a, std::string_view b) {
  const auto digits = [](std::string_view text) {
    const std::size_t end = text.find_first_not_of("0123456789");
    return text.substr(0, end);
  };
  while (!a.empty() && !b.empty()) {
    const std::string_view left = digits(a);
    const std::string_view right = digits(b);
    if (!left.empty() && !right.empty()) {
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
      a.remove_prefix(left.size());
      b.remove_prefix(right.size());
      continue;
    }
    if (a.front() != b.front()) return a.front() < b.front();
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
}

std::vector<const Module*> in_reading_order(const Identified& identified) {
  std::vector<const Module*> modules;
  for (const Module& module : identified.modules) modules.push_back(&module);
  std::stable_sort(modules.begin(), modules.end(),
                   [](const Module* a, const Module* b) { return reads_before(a->name, b->name); });
  return modules;
}

// By a dotted prefix of names, or a pattern of the shell whose * crosses dots.
bool is_asked(const Module& module, const std::string& asked) {
  if (asked.find_first_of("*?[") == std::string::npos) {
    const std::string prefix = asked.ends_with('.') ? asked : asked + ".";
    return module.name.starts_with(prefix);
  }
  return glob_match(module.name, asked) ||
         std::ranges::any_of(module.parts, [&](const Module::Part& part) {
           return glob_match(part.tensor, asked);
         });
}

std::vector<const Module*> asked_modules(const Identified& identified, const std::string& asked) {
  std::vector<const Module*> modules = in_reading_order(identified);
  std::erase_if(modules, [&](const Module* module) { return !is_asked(*module, asked); });
  return modules;
}

Result<int> show_modules(const Options& options, const Checkpoint& checkpoint,
                         const std::vector<const Module*>& listed_modules) {
  if (options.json) {
    Json modules{Json::Array{}};
    for (const Module* module : listed_modules) {
      modules.push_back(module_json(checkpoint, *module));
    }
    print_json(modules);
    return exit_fine;
  }
  Table table({Align::left, Align::left, Align::right, Align::left, Align::right});
  table.add({"module", "role", "[n, k]", "scheme", "bytes"});
  for (const Module* listed : listed_modules) {
    const Module& module = *listed;
    const std::string shape =
        module.k > 0 ? fmt::format("[{}, {}]", module.n, module.k) : fmt::format("[{}]", module.n);
    table.add({module.name, role_name(module.role), shape,
               module.unreadable.empty() ? scheme_text(module.scheme) : module.unreadable,
               bytes_text(module_bytes(checkpoint, module))});
  }
  print_out("{}", Lines{table.text(0)});
  return exit_fine;
}

Result<int> show_module(const Options& options, const Checkpoint& checkpoint,
                        const Module& module) {
  if (options.json) {
    print_json(module_json(checkpoint, module));
  } else {
    print_module(checkpoint, module);
  }
  return exit_fine;
}

void print_stats(const TensorInfo& info, const TensorStats& stats) {
  print_out("{}  {} {}  {}\n", info.name, stored_type_name(info),
            shape_text(shape_in_elements(info)), bytes_text(info.bytes));
  if (stats.finite == 0) {
    print_out("no finite value\n");
  } else {
    print_out("min {:g}  max {:g}  mean {:g}  rms {:g}\n", stats.min, stats.max, stats.mean,
              stats.rms);
  }
  print_out("{} elements: {} zero, {} negative, {} NaN, {} infinite\n", stats.elements, stats.zero,
            stats.negative, stats.nan, stats.infinite);
  if (stats.finite > stats.zero) print_out("magnitudes\n{}", Lines{histogram_text(stats)});
}

// What a tensor is in its file.
void set_stored(Json& out, const TensorInfo& info) {
  Json shape{Json::Array{}};
  for (const std::int64_t size : shape_in_elements(info)) shape.push_back(size);
  out.set("tensor", info.name);
  out.set("dtype", stored_type_name(info));
  out.set("shape", shape);
  out.set("bytes", info.bytes);
}

// Packed codes and integers have no values of their own.
Result<int> show_codes(const Options& options, const TensorInfo& info) {
  if (options.json) {
    Json out;
    set_stored(out, info);
    print_json(out);
  } else {
    print_out("{}  {} {}  {}\npacked codes or integers: no statistics of values\n", info.name,
              stored_type_name(info), shape_text(shape_in_elements(info)), bytes_text(info.bytes));
  }
  return exit_fine;
}

// What bytes of a scale mean: exponents stand in u8 where a writer has no type for them.
DType meaning(const Identified& identified, const TensorInfo& info) {
  if (info.dtype != DType::u8) return info.dtype;
  for (const Module& module : identified.modules) {
    for (const Module::Part& part : module.parts) {
      if (part.tensor != info.name || part.suffix.find("scale") == std::string::npos) continue;
      const auto& scale = module.scheme.scale;
      return scale && dtype_bits(scale->dtype) == 8 ? scale->dtype : info.dtype;
    }
  }
  return info.dtype;
}

// The quantized module whose codes a tensor holds; nullptr for scales and plain tensors.
const Module* module_of_codes(const Identified& identified, const TensorInfo& info) {
  for (const Module& module : identified.modules) {
    for (const Module::Part& part : module.parts) {
      if (part.tensor != info.name) continue;
      const bool codes = module.scheme.quantized() && is_weight_suffix(part.suffix);
      return codes && module.unreadable.empty() ? &module : nullptr;
    }
  }
  return nullptr;
}

// Codes mean nothing without their scales: statistics of the weights that they stand for.
Result<int> show_decoded(const Options& options, const TensorInfo& info, const Module& module,
                         const TensorStats& stats) {
  if (options.json) {
    Json out = stats_json(stats);
    set_stored(out, info);
    out.set("decoded", true);
    out.set("scheme", scheme_text(module.scheme));
    print_json(out);
  } else {
    print_out("decoded as {}, {}[{}, {}]\n", scheme_text(module.scheme),
              module.experts == 0 ? ""
                                  : fmt::format("{} {} ", module.experts,
                                                module.expert == -1 ? "matrices" : "experts"),
              module.n, module.k);
    print_stats(info, stats);
  }
  return exit_fine;
}

Result<int> show_tensor(const Options& options, const Checkpoint& checkpoint,
                        const Identified& identified, const TensorInfo& info) {
  if (const Module* module = module_of_codes(identified, info)) {
    const auto decoded = decoded_stats(checkpoint, *module);
    if (decoded) return show_decoded(options, info, *module, *decoded);
  }
  TensorView view = checkpoint.tensor(info).view;
  view.dtype = meaning(identified, info);
  auto stats = tensor_stats(view, info.blocks);
  if (!stats && stats.error().code == ErrorCode::unsupported) return show_codes(options, info);
  if (!stats) return Error{stats.error().code, stats.error().what, info.name};
  if (options.json) {
    Json out = stats_json(*stats);
    set_stored(out, info);
    if (view.dtype != info.dtype) out.set("read_as", dtype_name(view.dtype));
    print_json(out);
  } else {
    if (view.dtype != info.dtype) print_out("read as {}\n", dtype_name(view.dtype));
    print_stats(info, *stats);
  }
  return exit_fine;
}

Result<int> run_inspect(const Options& options) {
  if (options.name.empty() && is_prepared(options.path)) {
    return inspect_prepared(options.path, options);
  }
  FEWBIT_TRY(const Checkpoint checkpoint, Checkpoint::open(options.path));
  FEWBIT_TRY(const Identified identified, identify(checkpoint));
  if (options.name.empty()) {
    return show_modules(options, checkpoint, in_reading_order(identified));
  }
  if (const TensorInfo* info = checkpoint.find(options.name)) {
    return show_tensor(options, checkpoint, identified, *info);
  }
  if (const Module* module = identified.find(options.name)) {
    return show_module(options, checkpoint, *module);
  }
  const std::vector<const Module*> asked = asked_modules(identified, options.name);
  if (!asked.empty()) {
    FEWBIT_TRY(const int code, show_modules(options, checkpoint, asked));
    if (!options.json) {
      print_out("\n{} for '{}'; the whole name of one shows its tensors\n",
                counted(asked.size(), "module"), options.name);
    }
    return code;
  }
  return Error{
      ErrorCode::not_found,
      fmt::format("no tensor or module '{}' among {}; `fewbit inspect {}` lists them, and "
                  "a beginning or a pattern such as 'model.layers.0.*' some",
                  options.name, counted(checkpoint.tensors().size(), "tensor"), options.path),
      "NAME"};
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Every module with role, scheme and bytes; or one module or tensor in detail");
  command->add_option("DIR", options->path, "Checkpoint directory, index or file")
      ->required()
      ->check(not_empty);
  command
      ->add_option("NAME", options->name,
                   "A tensor (statistics), a module (its tensors), a beginning or a pattern "
                   "(the modules it names)")
      ->check(not_empty);
  add_json_option(*command, *options);
  command->footer(
      "Examples:\n  fewbit inspect models/tiny-moe\n"
      "  fewbit inspect models/tiny-moe 'model.layers.0.*'\n"
      "  fewbit inspect models/tiny-moe model.layers.0.mlp.experts.3.up_proj\n"
      "  fewbit inspect models/tiny-moe model.layers.0.mlp.experts.3.up_proj.weight_scale");
  set_body(*command, *options, exit_code, [options] { return run_inspect(*options); });
}

}  // namespace fewbit::cli
