// SPDX-License-Identifier: Apache-2.0
// Reads a golden set through fewbit's own JSON and safetensors readers.
#include <fstream>
#include <sstream>

#include "fewbit/checkpoint.hpp"
#include "golden/case.hpp"

namespace fewbit::golden {
namespace {

using Files = std::map<std::string, Checkpoint>;

Result<DType> logical_dtype(const std::string& name, const std::string& where) {
  static const std::map<std::string, DType, std::less<>> names = {
      {"f64", DType::f64},         {"f32", DType::f32},
      {"f16", DType::f16},         {"bf16", DType::bf16},
      {"i64", DType::i64},         {"i32", DType::i32},
      {"i16", DType::i16},         {"i8", DType::i8},
      {"u16", DType::u16},         {"u8", DType::u8},
      {"bool", DType::boolean},    {"f8_e4m3fn", DType::f8_e4m3},
      {"f8_e5m2", DType::f8_e5m2}, {"f8_e8m0fnu", DType::f8_e8m0}};
  const auto it = names.find(name);
  if (it == names.end()) {
    return Error{ErrorCode::unsupported, "logical dtype '" + name + "' is unknown", where};
  }
  return it->second;
}

Result<Tensor> load_reference(const Json& reference, const Files& files, const std::string& file,
                              const std::string& where) {
  const Json* key = reference.find("tensor");
  const Json* dtype = reference.find("dtype");
  if (key == nullptr || key->as_string() == nullptr || dtype == nullptr ||
      dtype->as_string() == nullptr) {
    return Error{ErrorCode::corrupt, "reference lacks 'tensor' or 'dtype'", where};
  }
  const auto it = files.find(file);
  if (it == files.end())
    return Error{ErrorCode::not_found, "file '" + file + "' is missing", where};
  FEWBIT_TRY(Tensor tensor, it->second.tensor(*key->as_string()));
  FEWBIT_TRY(const DType logical, logical_dtype(*dtype->as_string(), where));
  if (dtype_bits(logical) != dtype_bits(tensor.view.dtype)) {
    return Error{ErrorCode::corrupt,
                 "logical dtype " + *dtype->as_string() + " does not fit stored " +
                     std::string(dtype_name(tensor.view.dtype)),
                 where};
  }
  tensor.view.dtype = logical;
  return tensor;
}

Result<void> load_roles(const Json& entry, const Files& files, GoldenCase& out) {
  const Json* file = entry.find("file");
  const std::string file_name =
      file != nullptr && file->as_string() != nullptr ? *file->as_string() : "";
  for (const char* side : {"inputs", "outputs"}) {
    const Json* roles = entry.find(side);
    if (roles == nullptr || roles->as_object() == nullptr) {
      return Error{ErrorCode::corrupt, std::string("no object '") + side + "'", out.name};
    }
    for (const auto& [role, reference] : *roles->as_object()) {
      FEWBIT_TRY(Tensor tensor, load_reference(reference, files, file_name, out.name + " " + role));
      if (side[0] == 'i') {
        out.inputs.emplace(role, std::move(tensor));
      } else {
        out.outputs.emplace(role, Expected{std::move(tensor), reference.find("compare")});
      }
    }
  }
  return {};
}

Result<GoldenCase> load_case(const Json& entry, const Files& files) {
  GoldenCase out;
  const Json* name = entry.find("name");
  const Json* op = entry.find("op");
  if (name == nullptr || name->as_string() == nullptr || op == nullptr ||
      op->as_string() == nullptr) {
    return Error{ErrorCode::corrupt, "a case lacks 'name' or 'op'", "manifest.json"};
  }
  out.name = *name->as_string();
  out.op = *op->as_string();
  out.params = entry.find("params");
  FEWBIT_TRY(load_roles(entry, files, out));
  return out;
}

Result<Json> read_manifest(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Error{ErrorCode::not_found, "can't be read", path};
  std::ostringstream text;
  text << stream.rdbuf();
  return Json::parse(text.str(), path);
}

}  // namespace

Result<std::unique_ptr<GoldenSet>> load_golden_set(const std::string& directory) {
  auto set = std::make_unique<GoldenSet>();
  const std::string path = directory + "/manifest.json";
  FEWBIT_TRY(set->manifest, read_manifest(path));
  const Json* schema = set->manifest.find("schema");
  if (schema == nullptr || schema->as_string() == nullptr ||
      *schema->as_string() != "golden-manifest/1") {
    return Error{ErrorCode::unsupported,
                 "schema is " + (schema == nullptr ? "absent" : schema->dump()) +
                     ", expected \"golden-manifest/1\"",
                 path};
  }
  const Json* files = set->manifest.find("files");
  const Json* cases = set->manifest.find("cases");
  if (files == nullptr || files->as_object() == nullptr || cases == nullptr ||
      cases->as_array() == nullptr) {
    return Error{ErrorCode::corrupt, "no object 'files' or array 'cases'", path};
  }
  if (const Json* name = set->manifest.find("set");
      name != nullptr && name->as_string() != nullptr) {
    set->name = *name->as_string();
  }
  Files open;
  for (const auto& [file, unused] : *files->as_object()) {
    FEWBIT_TRY(Checkpoint checkpoint, Checkpoint::open(directory + "/" + file));
    open.emplace(file, std::move(checkpoint));
  }
  for (const Json& entry : *cases->as_array()) {
    FEWBIT_TRY(GoldenCase loaded, load_case(entry, open));
    set->cases.push_back(std::move(loaded));
  }
  return set;
}

}  // namespace fewbit::golden
