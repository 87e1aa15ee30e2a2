// SPDX-License-Identifier: Apache-2.0
#include "scheme/packed_rows.hpp"

#include <fmt/format.h>

#include <cstring>

#include "core/checked.hpp"
#include "scheme/integer_parts.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/passing_tensor.hpp"
#include "scheme/whole_words.hpp"

namespace fewbit {
namespace {

constexpr DType widths[] = {DType::u1, DType::u2, DType::u3, DType::u4,
                            DType::u5, DType::u6, DType::u7, DType::u8};

// Words of a row of k codes.
std::optional<std::int64_t> row_words(std::int64_t k, int bits) {
  const auto total = checked_mul(k, std::int64_t{bits});
  if (!total) return std::nullopt;
  return ceil_div(*total, std::int64_t{32});
}

// The width that fits the words; the declared one when it does. Empty: none or several.
std::optional<int> width_of(std::int64_t k, std::int64_t words, std::optional<int> declared) {
  if (declared && row_words(k, *declared) == words) return declared;
  // Before other widths: of 7 bits they are as many as words of 8.
  if (declared && words == words_of_codes(k, *declared, true)) return declared;
  std::optional<int> found;
  for (int bits = 1; bits <= 8; ++bits) {
    if (row_words(k, bits) != words) continue;
    if (found) return std::nullopt;
    found = bits;
  }
  return found;
}

class Claim {
 public:
  Claim(const Inventory& inventory, Draft& draft, const IntegerOptions& options,
        WeightShapes& shapes)
      : inventory_(inventory), draft_(draft), options_(options), shapes_(shapes) {}

  void run(Producer producer) {
    scheme_.producer = producer;
    scheme_.weight = DType::u4;
    scheme_.packing = Packing::words_row;
    scheme_.activation = options_.activation;
    std::string odd = find_odd();
    if (odd.empty()) {
      draft_.claim(scheme_);
    } else {
      draft_.refuse(scheme_, std::move(odd));
    }
  }

 private:
  std::string find_odd() {
    Module& module = draft_.module;
    const TensorInfo& packed = *integer_part(draft_, "weight_packed");
    const std::size_t rank = packed.shape.size();
    if (rank != 2 && (rank != 3 || module.expert != all_experts)) {
      return fmt::format("packed codes of shape {}, expected [rows, words]",
                         shape_text(packed.shape));
    }
    if (rank == 3) module.experts = packed.shape[0];
    module.n = packed.shape[rank - 2];
    const std::int64_t words = packed.shape.back();
    if (module.n < 1 || words < 1) return "packed codes of shape " + shape_text(packed.shape);
    if (std::string odd = read_columns(words); !odd.empty()) return odd;
    return read_integer_parts(inventory_, draft_, options_, scheme_);
  }

  // Sets k and the width.
  std::string read_columns(std::int64_t words) {
    Module& module = draft_.module;
    const std::optional<int> bits = options_.bits;
    if (bits && (*bits < 1 || *bits > 8)) {
      return fmt::format("num_bits {}, expected 1 to 8", *bits);
    }
    const auto width_for = [&](const MatrixSize& size) {
      return size.n == module.n ? width_of(size.k, words, bits) : std::nullopt;
    };
    // Without a width in the config those of other modules are no help.
    const auto size =
        !bits ? stored_weight_shape(*inventory_.checkpoint, module)
              : shapes_.find(*inventory_.checkpoint, draft_, *bits,
                             [&](const auto& one) { return width_for(one).has_value(); });
    if (const auto width = size ? width_for(*size) : std::nullopt) {
      module.k = size->k;
      set_width(*width);
    } else if (const auto k = columns_by_groups(words)) {
      module.k = *k;
      set_width(*bits);
    } else if (size) {
      return fmt::format("{} rows of {} words, but weight_shape says [{}, {}]{}", module.n, words,
                         size->n, size->k,
                         bits ? fmt::format(" in {} bits", *bits) : std::string());
    } else {
      return fmt::format(
          "weight_shape [rows, columns] is missing, and {} words a row don't tell "
          "the number of columns",
          words);
    }
    return "";
  }

  void set_width(int bits) {
    scheme_.weight = widths[bits - 1];
    scheme_.zero_point = 1 << (bits - 1);
  }

  // Columns when words without padding are just the whole groups that the scales count.
  std::optional<std::int64_t> columns_by_groups(std::int64_t words) const {
    const TensorInfo* scale = integer_part(draft_, "weight_scale");
    if (!options_.bits || !options_.group_size || scale == nullptr || scale->shape.size() < 2) {
      return std::nullopt;
    }
    const auto total = checked_mul(words, std::int64_t{32});
    if (!total || *total % *options_.bits != 0) return std::nullopt;
    const std::int64_t k = *total / *options_.bits;
    const bool whole = k % *options_.group_size == 0;
    if (!whole || k / *options_.group_size != scale->shape.back()) return std::nullopt;
    return k;
  }

  const Inventory& inventory_;
  Draft& draft_;
  const IntegerOptions& options_;
  WeightShapes& shapes_;
  Scheme scheme_;
};

}  // namespace

void claim_packed_rows(const Inventory& inventory, Draft& draft, Producer producer,
                       const IntegerOptions& options, WeightShapes& shapes) {
  Claim(inventory, draft, options, shapes).run(producer);
}

std::optional<MatrixSize> WeightShapes::find(const Checkpoint& checkpoint, const Draft& draft,
                                             int bits,
                                             const std::function<bool(MatrixSize)>& fits) {
  Shape key = integer_part(draft, "weight_packed")->shape;
  const TensorInfo* scale = integer_part(draft, "weight_scale");
  if (scale != nullptr) key.insert(key.end(), scale->shape.begin(), scale->shape.end());
  key.push_back(bits);
  Known& known = known_[{without_numbers(draft.module.name), std::move(key)}];
  if (known.asked == most_asked) return known.size;
  const auto size = stored_weight_shape(checkpoint, draft.module);
  // One that fits tells of all others, the last of many that do not too.
  known.asked = size && fits(*size) ? most_asked : known.asked + 1;
  if (known.asked == most_asked) known.size = size;
  return size;
}

std::optional<MatrixSize> stored_weight_shape(const Checkpoint& checkpoint, const Module& module) {
  const std::string_view part =
      module.part("weight_shape").empty() ? module.part("shape") : module.part("weight_shape");
  const TensorInfo* info = checkpoint.find(part);
  if (info == nullptr) return std::nullopt;
  if (info->dtype != DType::i64 && info->dtype != DType::i32) return std::nullopt;
  const std::size_t width = info->dtype == DType::i64 ? 8 : 4;
  const PassingTensor tensor(checkpoint, *info);
  // Of fused experts: one pair an expert, all alike, or with the experts before it.
  const std::size_t count = tensor.bytes().size() / width;
  if (count < 2) return std::nullopt;
  const std::size_t first = count == 3 ? 1 : 0;
  std::int64_t values[2] = {0, 0};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::byte* from = tensor.bytes().data() + (first + i) * width;
    std::int32_t narrow = 0;
    std::memcpy(width == 8 ? static_cast<void*>(&values[i]) : static_cast<void*>(&narrow), from,
                width);
    if (width == 4) values[i] = narrow;
  }
  if (values[0] < 1 || values[1] < 1) return std::nullopt;
  return MatrixSize{values[0], values[1]};
}

}  // namespace fewbit
