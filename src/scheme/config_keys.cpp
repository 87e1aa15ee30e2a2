// SPDX-License-Identifier: Apache-2.0
#include "scheme/config_keys.hpp"

namespace fewbit {
namespace {

using K = ValueKind;
using P = Producer;

constexpr bool nullable = true;
constexpr bool aside = true;

constexpr std::string_view a_type = "the name of a type";
constexpr std::string_view a_format = "the name of a format";
constexpr std::string_view an_algorithm = "the name of an algorithm";
constexpr std::string_view by_module = "an object with settings by module";
constexpr std::string_view of_groups = "an object of groups";
constexpr std::string_view of_settings = "an object of settings";

// The first that fits counts.
constexpr ConfigKey keys[] = {
    // Whoever wrote it.
    {"quant_method", K::word, P::unknown, {}, false, false, "the name of a method"},
    {"quantization_config", K::object, P::unknown, {}, false, false, of_settings},
    {"compression_config", K::object, P::unknown, {}, false, false, of_settings},
    {"quant_algo", K::word, P::unknown, {}, nullable, false, an_algorithm},
    {"kv_cache_quant_algo", K::word, P::unknown, {}, nullable, false, an_algorithm},
    {"moe_quant_algo", K::word, P::unknown, {}, false, false, an_algorithm},
    {"moe_quant_format", K::word, P::unknown, {}, false, false, a_format},
    {"fmt", K::word, P::unknown, {}, false, false, a_type},
    {"scale_fmt", K::word, P::unknown, {}, false, false, a_type},
    {"weight_scale_semantics", K::word, P::unknown, {}, false, false, "a name"},
    {"kept_format", K::word, P::unknown, {}, false, false, a_format},
    {"activation_scheme", K::activation},
    {"provider", K::word, P::unknown, {}, nullable, aside},
    {"bits", K::width},
    {"w_bit", K::width},
    {"wbits", K::width},
    {"num_bits", K::width},
    {"nbits", K::width},
    {"group_size", K::group, P::compressed_tensors, {}, nullable},
    {"group_size", K::group, P::modelopt, {}, nullable},
    {"group_size", K::group, P::quark, {}, nullable},
    {"group_size", K::group},
    {"q_group_size", K::group},
    {"awq_block_size", K::group, P::unknown, {}, nullable},
    {"ignore", K::names, P::unknown, {}, nullable},
    {"ignored_layers", K::names, P::unknown, {}, nullable},
    {"exclude", K::names, P::unknown, {}, nullable},
    {"exclude_modules", K::names, P::unknown, {}, nullable},
    {"modules_to_not_convert", K::names, P::unknown, {}, nullable},
    {"llm_int8_skip_modules", K::names, P::unknown, {}, nullable},
    {"autoround_version", K::word, P::unknown, {}, nullable, aside},

    // FP8.
    {"expert_dtype", K::word, P::fp8, {}, nullable, false, a_type},
    {"quantized_layers", K::settings, P::fp8, {}, nullable, false, by_module},
    {"activation_scale_ub", K::number, P::fp8, {}, nullable, aside},
    {"is_checkpoint_fp8_serialized", K::flag, P::fp8, {}, nullable, aside},

    // GPTQ and AWQ.
    {"checkpoint_format", K::word, P::gptq, {}, false, false, a_format},
    {"format", K::word, P::gptq, {}, false, false, a_format},
    {"version", K::word, P::gptq, {}, false, false, a_format},
    {"method", K::word, P::gptq, {}, nullable, false, "the name of a method"},
    {"pack_dtype", K::word, P::gptq, {}, false, false, a_type},
    {"sym", K::flag, P::gptq},
    {"zero_point", K::flag, P::gptq},
    {"desc_act", K::flag, P::gptq},
    {"lm_head", K::flag, P::gptq, "quantization_config", nullable},
    {"lm_head", K::flag, P::gptq, "", nullable},
    {"is_marlin_format", K::flag, P::gptq, {}, nullable},
    {"dynamic", K::settings, P::gptq, {}, nullable, false, "an object of rules"},
    {"modules_in_block_to_quantize", K::nested_names, P::gptq, {}, nullable},
    {"quantizer", K::words, P::gptq, "meta", nullable, aside},
    {"meta", K::object, P::gptq, {}, nullable, aside},
    {"damp_percent", K::number, P::gptq, {}, nullable, aside},
    {"damp_auto_increment", K::number, P::gptq, {}, nullable, aside},
    {"mse", K::number, P::gptq, {}, nullable, aside},
    {"static_groups", K::flag, P::gptq, {}, nullable, aside},
    {"true_sequential", K::flag, P::gptq, {}, nullable, aside},
    {"checkpoint_format", K::word, P::awq, {}, false, false, a_format},
    {"format", K::word, P::awq, {}, false, false, a_format},
    {"version", K::word, P::awq, {}, false, false, a_format},
    {"method", K::word, P::awq, {}, nullable, false, "the name of a method"},
    {"zero_point", K::flag, P::awq},
    {"sym", K::flag, P::awq, {}, nullable, aside},
    {"desc_act", K::flag, P::awq, {}, nullable, aside},

    // AutoRound; exports to compressed-tensors may keep its keys.
    {"packing_format", K::word, P::auto_round, {}, false, false, a_format},
    {"data_type", K::word, P::auto_round, {}, false, false, a_type},
    {"sym", K::flag, P::auto_round},
    {"format", K::word, P::auto_round, {}, nullable, false, a_format},
    {"extra_config", K::settings, P::auto_round, {}, nullable, false, by_module},
    {"block_name_to_quantize", K::nested_names, P::auto_round, {}, nullable},
    {"to_quant_block_names", K::nested_names, P::auto_round, {}, nullable},
    {"quant_block_list", K::nested_names, P::auto_round, {}, nullable},
    {"act_bits", K::width, P::auto_round, {}, nullable, aside},
    {"packing_format", K::word, P::compressed_tensors, {}, false, false, a_format},
    {"data_type", K::word, P::compressed_tensors, {}, false, false, a_type},
    {"sym", K::flag, P::compressed_tensors},
    {"extra_config", K::settings, P::compressed_tensors, {}, nullable, false, by_module},
    {"act_bits", K::width, P::compressed_tensors, {}, nullable, aside},

    // compressed-tensors; its groups have a reader that checks them (compressed_tensors_args.hpp).
    {"format", K::word, P::compressed_tensors, "sparsity_config", false, false, a_format},
    {"format", K::word, P::compressed_tensors, {}, nullable, false, a_format},
    {"config_groups", K::object, P::compressed_tensors, {}, false, false, of_groups},
    {"config_groups", K::object, P::auto_round, {}, false, false, of_groups},
    {"kv_cache_scheme", K::object, P::compressed_tensors, {}, nullable, false, of_settings},
    {"sparsity_config", K::object, P::compressed_tensors, {}, nullable, false, of_settings},
    {"transform_config", K::object, P::compressed_tensors, {}, nullable, false, of_settings},
    {"moe_sparsity_config", K::object, P::compressed_tensors, {}, nullable, aside},
    {"quantization_status", K::word, P::compressed_tensors, {}, false, aside},
    {"quantization_status", K::word, P::auto_round, {}, false, aside},
    {"global_compression_ratio", K::number, P::compressed_tensors, {}, nullable, aside},
    {"version", K::word, P::compressed_tensors, {}, nullable},
    {"type", K::word, P::compressed_tensors, "kv_cache_scheme", false, false, a_type},

    // ModelOpt.
    {"quantized_layers", K::settings, P::modelopt, {}, nullable, false, by_module},
    {"config_groups", K::object, P::modelopt, {}, false, false, of_groups},
    {"kv_cache_scheme", K::object, P::modelopt, {}, nullable, false, of_settings},
    {"quantization", K::object, P::modelopt, {}, false, false, of_settings},
    {"has_zero_point", K::flag, P::modelopt, {}, nullable},
    {"pre_quant_scale", K::flag, P::modelopt, {}, nullable},
    {"producer", K::object, P::modelopt, {}, nullable, aside},
    {"name", K::word, P::modelopt, "producer", false, aside},
    {"version", K::word, P::modelopt, "producer", false, aside},

    // Quark.
    {"global_quant_config", K::object, P::quark, {}, false, false, of_settings},
    {"layer_quant_config", K::settings, P::quark, {}, nullable, false, by_module},
    {"layer_type_quant_config",
     K::settings,
     P::quark,
     {},
     nullable,
     false,
     "an object with settings by class"},
    {"kv_cache_quant_config", K::settings, P::quark, {}, nullable, false, by_module},
    {"algo_config", K::steps, P::quark, {}, nullable},
    {"name", K::word, P::quark, "algo_config", false, false, an_algorithm},
    {"r1", K::flag, P::quark, "algo_config"},
    {"r2", K::flag, P::quark, "algo_config"},
    {"r3", K::flag, P::quark, "algo_config"},
    {"r4", K::flag, P::quark, "algo_config"},
    {"online_r1_rotation", K::flag, P::quark, "algo_config"},
    {"weight", K::spec, P::quark, {}, nullable},
    {"input_tensors", K::spec, P::quark, {}, nullable},
    {"output_tensors", K::spec, P::quark, {}, nullable},
    {"bias", K::spec, P::quark, {}, nullable},
    {"symmetric", K::flag, P::quark, {}, nullable},
    {"is_dynamic", K::flag, P::quark},
    {"is_scale_quant", K::flag, P::quark, {}, nullable},
    {"ch_axis", K::integer, P::quark, {}, nullable},
    {"scale_format", K::word, P::quark, {}, nullable, false, a_format},
    {"scale_type", K::word, P::quark, {}, nullable, false, a_type},
    {"mx_element_dtype", K::word, P::quark, {}, nullable, false, a_type},
    {"scale_calculation_mode", K::word, P::quark, {}, nullable, aside},
    {"round_method", K::word, P::quark, {}, nullable, aside},
    {"observer_cls", K::word, P::quark, {}, nullable, aside},
    {"export", K::object, P::quark, {}, nullable, false, of_settings},
    {"kv_cache_group", K::names, P::quark, "export", nullable, aside},
    {"pack_method", K::word, P::quark, "export", nullable, false, "the name of an order"},
    {"weight_format", K::word, P::quark, "export", nullable, false, a_format},
    {"min_kv_scale", K::number, P::quark, "export", nullable, aside},
    {"quant_mode", K::word, P::quark, {}, nullable, aside},
    {"version", K::word, P::quark, {}, nullable, aside},

    // Others.
    {"mode", K::word, P::mlx, {}, false, false, "affine, mxfp4, mxfp8 or nvfp4"},
    {"linear_class", K::word, P::ternary, {}, false, false, "the name of a class"},
    {"quant_config", K::object, P::hqq, {}, false, false, of_settings},
    {"weight_quant_params", K::object, P::hqq, {}, false, false, of_settings},
    {"bnb_4bit_quant_type", K::word, P::bitsandbytes, {}, false, false, a_type},
    {"bnb_4bit_compute_dtype", K::word, P::bitsandbytes, {}, nullable, aside},
    {"bnb_4bit_quant_storage", K::word, P::bitsandbytes, {}, nullable, aside},
    {"bnb_4bit_use_double_quant", K::flag, P::bitsandbytes, {}, nullable},
    {"load_in_4bit", K::flag, P::bitsandbytes},
    {"load_in_8bit", K::flag, P::bitsandbytes},
    {"llm_int8_threshold", K::number, P::bitsandbytes, {}, nullable, aside},
};

}  // namespace

std::span<const ConfigKey> config_keys() { return keys; }

}  // namespace fewbit
