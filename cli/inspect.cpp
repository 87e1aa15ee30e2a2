// SPDX-License-Identifier: Apache-2.0
// fewbit inspect DIR [NAME]: modules with roles and schemes, or one tensor with its statistics.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "command.hpp"
#include "core/counted.hpp"
#include "core/nearest.hpp"
#include "core/quote.hpp"
#include "inventory.hpp"
#include "module_page.hpp"
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
  std::int64_t expert = -1;
};

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

// Of one expert: its own modules and those that hold all experts.
std::vector<const Module*> asked_modules(const Identified& identified, const Options& options) {
  std::vector<const Module*> modules = in_reading_order(identified);
  std::erase_if(modules, [&](const Module* module) {
    const bool of_it = options.expert < 0 || module->expert == options.expert ||
                       (module->expert == -2 && options.expert < module->experts);
    return !of_it || !(options.name.empty() || is_asked(*module, options.name));
  });
  return modules;
}

// The module that a tensor belongs to.
const Module* module_of(const Identified& identified, const std::string& tensor) {
  for (const Module& module : identified.modules) {
    const auto is_it = [&](const Module::Part& part) { return part.tensor == tensor; };
    if (std::ranges::any_of(module.parts, is_it)) return &module;
  }
  return nullptr;
}

// Names that a mistyped one may have meant: tensors, modules, and their beginnings or, of a
// pattern, what stands before its first wildcard, as deep as that is.
std::string meant_text(const Checkpoint& checkpoint, const Identified& identified,
                       const std::string& asked) {
  constexpr std::size_t most = 3;
  const std::size_t wildcard = asked.find_first_of("*?[");
  std::string word = asked.substr(0, wildcard);
  if (wildcard != std::string::npos) word = word.substr(0, word.rfind('.'));
  if (word.ends_with('.')) word.pop_back();
  const auto depth = std::ranges::count(word, '.');
  std::set<std::string> names;
  const auto add = [&](const std::string& name, bool whole) {
    std::size_t end = 0;
    for (std::ptrdiff_t dots = 0; end != std::string::npos && dots <= depth; ++dots) {
      end = name.find('.', end + (dots > 0 ? 1 : 0));
    }
    if (end != std::string::npos) names.insert(name.substr(0, end));
    if (whole) names.insert(name);
  };
  for (const Module& module : identified.modules) add(module.name, wildcard == std::string::npos);
  if (wildcard == std::string::npos) {
    for (const TensorInfo& tensor : checkpoint.tensors()) names.insert(tensor.name);
  }
  const std::vector<std::string> known(names.begin(), names.end());
  std::string text;
  for (const std::string& near : nearest_names(word, known, most)) {
    text += (text.empty() ? "; did you mean '" : " or '") + near + asked.substr(word.size()) + "'";
  }
  return text.empty() ? ";" : text + "?";
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
    table.add({module.name, role_name(module.role), module_shape_text(module),
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
  print_out("{}  {} {}  {}\n{}", info.name, stored_type_name(info),
            shape_text(shape_in_elements(info)), bytes_text(info.bytes), Lines{stats_text(stats)});
}

// What a tensor is in its file, and to what it belongs.
void set_stored(Json& out, const Identified& identified, const TensorInfo& info) {
  out.set("tensor", info.name);
  out.set("dtype", stored_type_name(info));
  out.set("shape", list_json(shape_in_elements(info)));
  out.set("bytes", info.bytes);
  const Module* module = module_of(identified, info.name);
  if (module == nullptr) return;
  out.set("module", module->name);
  if (module->experts > 0) out.set("experts", module->experts);
}

// Packed codes and integers have no values of their own.
Result<int> show_codes(const Options& options, const Identified& identified,
                       const TensorInfo& info) {
  if (options.json) {
    Json out;
    set_stored(out, identified, info);
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
  const Module* module = module_of(identified, info.name);
  if (module == nullptr || !module->scheme.quantized() || !module->unreadable.empty())
    return nullptr;
  for (const Module::Part& part : module->parts) {
    if (part.tensor == info.name) return is_weight_suffix(part.suffix) ? module : nullptr;
  }
  return nullptr;
}

// Codes mean nothing without their scales: statistics of the weights that they stand for.
Result<int> show_decoded(const Options& options, const Identified& identified,
                         const TensorInfo& info, const Module& module, const TensorStats& stats) {
  if (options.json) {
    Json out = stats_json(stats);
    set_stored(out, identified, info);
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
    if (decoded) return show_decoded(options, identified, info, *module, *decoded);
  }
  TensorView view = checkpoint.tensor(info).view;
  view.dtype = meaning(identified, info);
  auto stats = tensor_stats(view, info.blocks);
  if (!stats && stats.error().code == ErrorCode::unsupported)
    return show_codes(options, identified, info);
  if (!stats) return Error{stats.error().code, stats.error().what, info.name};
  if (options.json) {
    Json out = stats_json(*stats);
    set_stored(out, identified, info);
    if (view.dtype != info.dtype) out.set("read_as", dtype_name(view.dtype));
    print_json(out);
  } else {
    if (view.dtype != info.dtype) print_out("read as {}\n", dtype_name(view.dtype));
    print_stats(info, *stats);
  }
  return exit_fine;
}

// A name as it was given; a long one cut.
std::string shown(const std::string& name) {
  constexpr std::size_t most = 120;
  return name.size() > most ? quote(name, most) : "'" + name + "'";
}

Error unknown_name(const Options& options, const Checkpoint& checkpoint,
                   const Identified& identified) {
  const std::string meant = meant_text(checkpoint, identified, options.name);
  const std::string of = options.expert >= 0 ? fmt::format(" of expert {}", options.expert) : "";
  return Error{
      ErrorCode::not_found,
      fmt::format("no tensor or module {}{} among {}{} `fewbit inspect {}` lists them, and "
                  "a beginning or a pattern such as 'model.layers.0.*' some",
                  shown(options.name), of, counted(checkpoint.tensors().size(), "tensor"), meant,
                  options.path),
      "NAME"};
}

// What the name stands for: a tensor, a module, or several of them.
Result<int> show_named(const Options& options, const Checkpoint& checkpoint,
                       const Identified& identified) {
  const TensorInfo* info = checkpoint.find(options.name);
  const Module* module = identified.find(options.name);
  if (options.expert >= 0 && (info != nullptr || module != nullptr)) {
    if (module == nullptr) module = module_of(identified, options.name);
    if (module != nullptr) return show_expert(checkpoint, *module, options.expert, options.json);
  }
  if (info != nullptr) {
    // Experts in one tensor often have its name for their own.
    if (module != nullptr && !options.json) {
      print_module(checkpoint, *module);
      print_out("\n");
    }
    return show_tensor(options, checkpoint, identified, *info);
  }
  if (module != nullptr) return show_module(options, checkpoint, *module);
  const std::vector<const Module*> asked = asked_modules(identified, options);
  if (asked.empty() && is_prepared(options.path) && find_role(options.name).expert >= 0) {
    return Error{ErrorCode::not_found,
                 shown(options.name) +
                     " is prepared: it is in a backend's layout, which `fewbit "
                     "inspect DIR` lists; ask about the checkpoint that it was "
                     "made from",
                 "NAME"};
  }
  if (asked.empty()) return unknown_name(options, checkpoint, identified);
  FEWBIT_TRY(const int code, show_modules(options, checkpoint, asked));
  if (!options.json) {
    print_out("\n{} for {}; the whole name of one shows its tensors\n",
              counted(asked.size(), "module"), shown(options.name));
  }
  return code;
}

Result<int> run_inspect(const Options& options) {
  const bool prepared = is_prepared(options.path);
  if (prepared && options.expert >= 0) {
    return Error{ErrorCode::invalid_argument,
                 "experts of a prepared folder are in a backend's layout; ask about the checkpoint "
                 "that it was made from",
                 "--expert"};
  }
  if (prepared && options.name.empty()) return inspect_prepared(options.path, options);
  FEWBIT_TRY(const Checkpoint checkpoint, open_checkpoint(options.path));
  FEWBIT_TRY(const Identified identified, identify(checkpoint));
  if (!options.name.empty()) return show_named(options, checkpoint, identified);
  const std::vector<const Module*> modules = asked_modules(identified, options);
  if (modules.empty() && options.expert >= 0) {
    return Error{ErrorCode::not_found, fmt::format("no module of expert {}", options.expert),
                 "--expert"};
  }
  return show_modules(options, checkpoint, modules);
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
  command
      ->add_option("--expert", options->expert,
                   "One expert: of experts in one tensor its weights and scales with histograms; "
                   "without such a NAME the modules that hold it")
      ->check(whole_number(0, 1 << 20))
      ->default_str("");
  add_json_option(*command, *options);
  command->footer(
      "Examples:\n  fewbit inspect models/tiny-moe\n"
      "  fewbit inspect models/tiny-moe 'model.layers.0.*'\n"
      "  fewbit inspect models/tiny-moe model.layers.0.mlp.experts.3.up_proj\n"
      "  fewbit inspect models/tiny-moe model.layers.0.mlp.experts.3.up_proj.weight_scale\n"
      "  fewbit inspect gpt-oss-20b model.layers.0.mlp.experts.gate_up_proj --expert 3");
  set_body(*command, *options, exit_code, [options] { return run_inspect(*options); });
}

}  // namespace fewbit::cli
