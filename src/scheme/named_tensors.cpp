// SPDX-License-Identifier: Apache-2.0
// Methods that are not decoded and that the names of their tensors tell, whatever the config says:
// AQLM, QuIP#, SpQR, VPTQ, HIGGS, EETQ, MLX, and weights in Marlin's order.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheme/name_parts.hpp"
#include "scheme/named_methods.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

// Tensors behind the name of a linear layer.
struct Print {
  std::vector<std::string_view> needs;
  std::string_view method;
  Producer producer = Producer::unknown;
};

const std::vector<Print>& prints() {
  static const std::vector<Print> list = {
      {{"codes", "codebooks", "scales"}, "aqlm"},
      {{"Qidxs"}, "quip#"},
      {{"dense_weights", "row_offsets", "col_vals"}, "spqr"},
      {{"indices", "centroids"}, "vptq"},
      {{"tables", "tables2", "scales"}, "higgs"},
      {{"qweight", "weight_scales"}, "eetq"},
      {{"weight", "weight_scales"}, "eetq"},
      {{"weight", "scales", "biases"}, "mlx"},
      {{"weight", "scales"}, "mlx"},
      {{"B", "s"}, "marlin", Producer::gptq},
      {{"B_24", "B_meta", "s"}, "gptq_marlin_24", Producer::gptq},
  };
  return list;
}

// A linear layer, of which some tensors have names that are no suffix elsewhere and so are drafts
// of their own.
struct Layer {
  std::vector<Draft*> drafts;
  std::vector<std::string_view> names;
};

std::map<std::string_view, Layer> find_layers(Inventory& inventory) {
  std::map<std::string_view, Layer> layers;
  const auto add = [&](std::string_view layer, std::string_view name, Draft& draft) {
    Layer& place = layers[layer];
    place.drafts.push_back(&draft);
    place.names.push_back(name);
  };
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed) continue;
    const std::string_view module = draft.module.name;
    for (std::size_t i = 0; i < draft.tensors.size(); ++i) {
      const bool bare = draft.tensors[i]->name == draft.module.name;
      const std::size_t dot = module.rfind('.');
      if (!bare) add(module, draft.module.parts[i].suffix, draft);
      if (bare && dot != std::string_view::npos) {
        add(module.substr(0, dot), module.substr(dot + 1), draft);
      }
    }
  }
  return layers;
}

// EETQ's rows are bytes, MLX's are words; other methods have such names beside other types.
bool types_fit(const Print& print, const Layer& layer) {
  const bool words = print.method == "mlx";
  if (print.method != "eetq" && !words) return true;
  return std::any_of(layer.drafts.begin(), layer.drafts.end(), [&](const Draft* draft) {
    const TensorInfo* weight = draft->tensor(print.needs.front());
    return weight != nullptr && weight->dtype == (words ? DType::u32 : DType::i8);
  });
}

bool matches(const Print& print, const Layer& layer) {
  return std::all_of(print.needs.begin(), print.needs.end(),
                     [&](std::string_view need) {
                       return std::find(layer.names.begin(), layer.names.end(), need) !=
                              layer.names.end();
                     }) &&
         types_fit(print, layer);
}

}  // namespace

void claim_named_tensors(Inventory& inventory) {
  for (const auto& layer : find_layers(inventory)) {
    const auto print = std::find_if(prints().begin(), prints().end(),
                                    [&](const Print& one) { return matches(one, layer.second); });
    if (print == prints().end()) continue;
    for (Draft* draft : layer.second.drafts) {
      if (draft->claimed) continue;
      Scheme scheme;
      scheme.producer = print->producer;
      // MLX is one of the formats that AutoRound writes.
      if (print->method == "mlx" && inventory.declared.says(Producer::auto_round)) {
        scheme.producer = Producer::auto_round;
      }
      scheme.weight = draft->tensors.front()->dtype;
      draft->refuse(scheme, named_method_text(std::string(print->method)));
    }
  }
}

}  // namespace fewbit
