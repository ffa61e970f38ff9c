#include "audit/readers/safetensors/header.h"

#include <algorithm>
#include <tuple>

#include "audit/readers/safetensors/json.h"

namespace plumbline::audit {
namespace {

struct FormatDType {
  const char* name;
  uint64_t bits;
  DType dtype;
};

// All dtypes of the format. Tensors of a dtype without DType cannot be read, but their layout is
// checked.
constexpr FormatDType kDTypes[] = {{"F64", 64, DType::kF64},
                                   {"F32", 32, DType::kF32},
                                   {"F16", 16, DType::kF16},
                                   {"BF16", 16, DType::kBF16},
                                   {"F8_E4M3", 8, DType::kE4M3},
                                   {"F8_E5M2", 8, DType::kE5M2},
                                   {"I64", 64, DType::kI64},
                                   {"I32", 32, DType::kI32},
                                   {"I16", 16, DType::kI16},
                                   {"I8", 8, DType::kI8},
                                   {"U64", 64, DType::kU64},
                                   {"U32", 32, DType::kU32},
                                   {"U16", 16, DType::kU16},
                                   {"U8", 8, DType::kU8},
                                   {"BOOL", 8, DType::kBool},
                                   {"C64", 64, DType::kUnspecified},
                                   {"F8_E8M0", 8, DType::kUnspecified},
                                   {"F6_E2M3", 6, DType::kUnspecified},
                                   {"F6_E3M2", 6, DType::kUnspecified},
                                   {"F4", 4, DType::kUnspecified}};

const FormatDType* FindDType(std::string_view name) {
  for (const FormatDType& known : kDTypes) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

// Returns the bytes that the shape and dtype need. If this number overflows or is not whole,
// returns nothing.
std::optional<uint64_t> SizeOf(const TensorEntry& tensor, uint64_t bits) {
  uint64_t total = 1;
  for (const int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(extent), &total)) return std::nullopt;
  }
  const bool whole = bits % 8 == 0;  // false for a packed dtype of less than a byte
  if (__builtin_mul_overflow(total, whole ? bits / 8 : bits, &total)) return std::nullopt;
  if (whole) return total;
  return total % 8 == 0 ? std::optional(total / 8) : std::nullopt;
}

std::optional<Problem> CheckTensor(TensorEntry* tensor) {
  const std::string name = "tensor " + Quoted(tensor->name);
  const FormatDType* dtype = FindDType(tensor->dtype_name);
  if (dtype == nullptr) {
    return Problem{tensor->declared_at,
                   "expected a dtype of the format (F32, BF16, I64, ...) for " + name + ", found " +
                       Quoted(tensor->dtype_name)};
  }
  tensor->dtype = dtype->dtype;
  if (tensor->begin > tensor->end) {
    return Problem{tensor->declared_at,
                   "expected data_offsets of " + name + " in ascending order, found " +
                       std::to_string(tensor->begin) + ", " + std::to_string(tensor->end)};
  }
  const std::optional<uint64_t> needed = SizeOf(*tensor, dtype->bits);
  if (!needed || *needed != tensor->bytes()) {
    return Problem{tensor->declared_at,
                   "expected " +
                       (needed ? std::to_string(*needed) + " bytes" : "a size that fits 64 bits") +
                       " for the shape and dtype of " + name + ", found data_offsets over " +
                       std::to_string(tensor->bytes()) + " bytes"};
  }
  return std::nullopt;
}

// Checks that every tensor is inside the data and every byte belongs to exactly one tensor. Makes
// the offsets absolute.
std::optional<Problem> CheckLayout(uint64_t data_start, uint64_t file_size,
                                   SafetensorsHeader* header) {
  std::vector<TensorEntry*> order;
  for (auto& [name, tensor] : header->tensors) {
    if (std::optional<Problem> problem = CheckTensor(&tensor)) return problem;
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::tie(a->begin, a->end, a->name) < std::tie(b->begin, b->end, b->name);
  });
  const uint64_t data_size = file_size - data_start;
  uint64_t expected = 0;
  for (TensorEntry* tensor : order) {
    const std::string name = "tensor " + Quoted(tensor->name);
    if (tensor->begin != expected) {
      return Problem{tensor->declared_at,
                     "expected " + name + " to begin at data offset " + std::to_string(expected) +
                         ", where the previous tensor ends, found " +
                         std::to_string(tensor->begin) +
                         (tensor->begin < expected ? " (they overlap)" : " (a hole)")};
    }
    expected = tensor->end;
    if (tensor->end > data_size) {
      return Problem{file_size, "expected " + std::to_string(tensor->end - data_size) +
                                    " more bytes of " + name + ", found the end of the file"};
    }
    tensor->begin += data_start;
    tensor->end += data_start;
  }
  if (expected != data_size) {
    return Problem{data_start + expected,
                   "expected the end of the file after the last tensor, found " +
                       std::to_string(data_size - expected) + " more bytes"};
  }
  return std::nullopt;
}

}  // namespace

const TensorEntry* SafetensorsHeader::Find(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

const MetadataEntry* SafetensorsHeader::Metadata(std::string_view key) const {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

std::optional<Problem> ReadSafetensorsHeader(const InputFile& file, SafetensorsHeader* header) {
  unsigned char raw[kHeaderLengthBytes];
  if (file.size() < kHeaderLengthBytes) {
    return Problem{file.size(), "expected 8 bytes of header length, found the end of the file"};
  }
  if (absl::Status status = file.ReadAt(0, reinterpret_cast<char*>(raw), kHeaderLengthBytes);
      !status.ok()) {
    return Problem{0, std::string(status.message())};
  }
  uint64_t length = 0;
  for (size_t i = kHeaderLengthBytes; i-- > 0;) length = (length << 8) | raw[i];
  if (length > kMaxHeaderBytes) {
    return Problem{0, "expected a header of at most " + std::to_string(kMaxHeaderBytes) +
                          " bytes, found " + std::to_string(length)};
  }
  if (length > file.size() - kHeaderLengthBytes) {
    return Problem{file.size(), "expected a header of " + std::to_string(length) +
                                    " bytes after the first 8, found the end of the file after " +
                                    std::to_string(file.size() - kHeaderLengthBytes)};
  }
  std::string json(length, '\0');
  if (absl::Status status = file.ReadAt(kHeaderLengthBytes, json.data(), json.size());
      !status.ok()) {
    return Problem{kHeaderLengthBytes, std::string(status.message())};
  }
  if (std::optional<Problem> problem = ParseSafetensorsJson(json, header)) return problem;
  return CheckLayout(kHeaderLengthBytes + length, file.size(), header);
}

}  // namespace plumbline::audit
