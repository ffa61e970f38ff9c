#include "analysis/sample/tensor_reader.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline::analysis {
namespace {

template <typename From, typename To>
To Converted(From v) {
  if constexpr (sizeof(To) == 1) return v != 0;
  if constexpr (std::is_same_v<From, uint64_t>)
    return static_cast<To>(std::min<From>(v, INT64_MAX));
  return static_cast<To>(v);
}

// One loop per type, so that it vectorises.
template <typename From, typename To>
void Convert(const char* from, int64_t count, To* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = Converted<From, To>(LoadRaw<From>(from, i));
}

template <typename To>
void Read(const v1::Tensor& tensor, int64_t first, int64_t count, To* out) {
  const auto dtype = static_cast<DType>(tensor.dtype());
  const char* from = tensor.data().data() + first * static_cast<int64_t>(DTypeSize(dtype));
  switch (dtype) {
    case DType::kI64:
      return Convert<int64_t>(from, count, out);
    case DType::kI32:
      return Convert<int32_t>(from, count, out);
    case DType::kI16:
      return Convert<int16_t>(from, count, out);
    case DType::kI8:
      return Convert<int8_t>(from, count, out);
    case DType::kU64:
      return Convert<uint64_t>(from, count, out);
    case DType::kU32:
      return Convert<uint32_t>(from, count, out);
    case DType::kU16:
      return Convert<uint16_t>(from, count, out);
    case DType::kU8:
      return Convert<uint8_t>(from, count, out);
    default:  // bool, and types that CheckTensor has refused
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<To>(LoadInt64(from, dtype, i));
  }
}

// Returns the rows by sequence, in the order of `rows` within each.
std::vector<std::vector<int32_t>> BySequence(const std::vector<int32_t>& rows,
                                             const std::vector<int64_t>& sequence) {
  std::unordered_map<int64_t, size_t> number;
  std::vector<std::vector<int32_t>> groups;
  size_t last = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t id = sequence[static_cast<size_t>(rows[i])];
    if (i == 0 || id != sequence[static_cast<size_t>(rows[i - 1])]) {
      last = number.try_emplace(id, groups.size()).first->second;
      if (last == groups.size()) groups.emplace_back();
    }
    groups[last].push_back(rows[i]);
  }
  return groups;
}

// Returns true if some position of these rows occurs twice.
bool Repeats(const std::vector<int32_t>& rows, const std::vector<int64_t>& position) {
  int64_t low = INT64_MAX, high = INT64_MIN;
  for (int32_t row : rows) {
    low = std::min(low, position[static_cast<size_t>(row)]);
    high = std::max(high, position[static_cast<size_t>(row)]);
  }
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  if (span < 16 * rows.size()) {
    std::vector<uint8_t> taken(span + 1);
    return std::any_of(rows.begin(), rows.end(), [&](int32_t row) {
      return std::exchange(taken[static_cast<size_t>(position[static_cast<size_t>(row)] - low)],
                           1) != 0;
    });
  }
  std::vector<int64_t> sorted;
  for (int32_t row : rows) sorted.push_back(position[static_cast<size_t>(row)]);
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
}

}  // namespace

absl::Status Cannot(const std::string& reason) { return absl::FailedPreconditionError(reason); }

std::string ShapeText(const v1::Tensor& tensor) {
  std::string text = "[";
  for (int i = 0; i < tensor.shape_size(); ++i)
    absl::StrAppend(&text, i ? ", " : "", tensor.shape(i));
  return text + "]";
}

// Checks that the tensor has exactly this shape and its bytes.
absl::Status CheckTensor(const char* name, const v1::Tensor& tensor, std::vector<int64_t> shape,
                         bool floating) {
  const auto dtype = static_cast<DType>(tensor.dtype());
  if (DTypeSize(dtype) == 0 || IsFloating(dtype) != floating) {
    return Cannot(absl::StrCat("bad-tensor: ", name, ": expected ",
                               floating ? "a floating" : "an integer", " dtype, found ",
                               DTypeName(dtype)));
  }
  if (!std::equal(shape.begin(), shape.end(), tensor.shape().begin(), tensor.shape().end())) {
    v1::Tensor expected;
    for (int64_t extent : shape) expected.add_shape(extent);
    return Cannot(absl::StrCat("bad-tensor: ", name, ": expected shape ", ShapeText(expected),
                               ", found ", ShapeText(tensor)));
  }
  uint64_t bytes = DTypeSize(dtype);
  bool fits = true;  // in 64 bits, even if a later extent is 0
  for (const int64_t extent : shape)
    fits &= extent >= 0 && !__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes);
  if (!fits) {
    return Cannot(absl::StrCat("bad-tensor: ", name, ": expected a tensor's extents, found ",
                               ShapeText(tensor)));
  }
  if (tensor.data().size() != bytes) {
    return Cannot(absl::StrCat("bad-tensor: ", name, ": expected ", bytes, " bytes, found ",
                               tensor.data().size()));
  }
  return absl::OkStatus();
}

void ReadIntegers(const v1::Tensor& tensor, int64_t first, int64_t count, int64_t* out) {
  Read(tensor, first, count, out);
}

void ReadMask(const v1::Tensor& tensor, int64_t first, int64_t count, uint8_t* out) {
  Read(tensor, first, count, out);
}

absl::StatusOr<std::vector<int64_t>> Column(const char* name, bool has, const v1::Tensor& tensor,
                                            int64_t rows) {
  std::vector<int64_t> values;
  if (!has) return values;
  if (auto status = CheckTensor(name, tensor, {rows}, false); !status.ok()) return status;
  values.resize(static_cast<size_t>(rows));
  ReadIntegers(tensor, 0, rows, values.data());
  return values;
}

absl::StatusOr<std::vector<int32_t>> ReadIndices(const v1::Tensor& tensor, int32_t rows, int32_t k,
                                                 int32_t experts,
                                                 const std::function<bool(int32_t)>& judged) {
  if (auto status = CheckTensor("topk_indices", tensor, {rows, k}, false); !status.ok()) {
    return status;
  }
  std::vector<int64_t> recorded(static_cast<size_t>(k));  // of one row
  std::vector<int32_t> indices;
  indices.reserve(static_cast<size_t>(rows) * static_cast<size_t>(k));
  std::vector<int32_t> seen(static_cast<size_t>(experts), -1);  // the last row with each expert
  for (int32_t t = 0; t < rows; ++t) {
    ReadIntegers(tensor, int64_t{t} * k, k, recorded.data());
    for (int32_t j = 0; j < k; ++j) {
      const int64_t e = recorded[static_cast<size_t>(j)];
      indices.push_back(static_cast<int32_t>(e));
      if (e == -1 && !judged(t)) continue;
      if (e == -1)
        return Cannot(absl::StrCat("no-choice: topk_indices is -1 at row ", t, ", choice ", j));
      if (e < 0 || e >= experts) {
        return Cannot(absl::StrCat("index-out-of-range: topk_indices: expected 0 to ", experts - 1,
                                   ", found ", e, " at row ", t, ", choice ", j));
      }
      if (std::exchange(seen[static_cast<size_t>(e)], t) == t) {
        return Cannot(
            absl::StrCat("index-repeated: topk_indices names expert ", e, " twice in row ", t));
      }
    }
  }
  return indices;
}

RepeatedRows FindRepeated(const std::vector<int32_t>& rows, const std::vector<int64_t>& sequence,
                          const std::vector<int64_t>& position) {
  const auto key = [&](int32_t t) {
    return std::make_pair(sequence[static_cast<size_t>(t)], position[static_cast<size_t>(t)]);
  };
  const auto unordered = [&](int32_t a, int32_t b) { return key(a) >= key(b); };
  if (std::adjacent_find(rows.begin(), rows.end(), unordered) == rows.end()) return {};
  const auto groups = BySequence(rows, sequence);
  if (std::none_of(groups.begin(), groups.end(),
                   [&](const auto& group) { return Repeats(group, position); })) {
    return {};
  }
  std::vector<int32_t> order = rows;
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return key(a) < key(b); });
  const auto twice = std::adjacent_find(order.begin(), order.end(),
                                        [&](int32_t a, int32_t b) { return key(a) == key(b); });
  return {std::min(twice[0], twice[1]), std::max(twice[0], twice[1])};
}

DenseIds NumberIds(const std::vector<int64_t>& ids) {
  DenseIds out;
  out.of_row.resize(ids.size());
  std::unordered_map<int64_t, int32_t> dense;
  for (size_t t = 0; t < ids.size(); ++t) {
    out.of_row[t] =
        t > 0 && ids[t] == ids[t - 1]
            ? out.of_row[t - 1]
            : dense.try_emplace(ids[t], static_cast<int32_t>(dense.size())).first->second;
  }
  out.count = static_cast<int32_t>(dense.size());
  return out;
}

}  // namespace plumbline::analysis
