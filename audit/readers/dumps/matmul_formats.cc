#include "audit/readers/dumps/matmul_formats.h"

#include <cstring>

#include "absl/strings/ascii.h"
#include "audit/readers/dumps/tensors.h"
#include "base/block_formats.h"
#include "base/load.h"

namespace plumbline::audit {
namespace {

struct FormatSpelling {
  std::string_view text;
  const char* format;
};
constexpr FormatSpelling kSpellings[] = {{"tf32", "tf32"},         {"tensorfloat32", "tf32"},
                                         {"f32", "f32"},           {"fp32", "f32"},
                                         {"float32", "f32"},       {"f16", "f16"},
                                         {"fp16", "f16"},          {"float16", "f16"},
                                         {"half", "f16"},          {"bf16", "bf16"},
                                         {"bfloat16", "bf16"},     {"e4m3", "e4m3"},
                                         {"e4m3fn", "e4m3"},       {"f8e4m3", "e4m3"},
                                         {"f8e4m3fn", "e4m3"},     {"fp8e4m3", "e4m3"},
                                         {"fp8e4m3fn", "e4m3"},    {"float8e4m3", "e4m3"},
                                         {"float8e4m3fn", "e4m3"}, {"mxfp8", "e4m3"},
                                         {"mxfp8e4m3", "e4m3"},    {"e5m2", "e5m2"},
                                         {"f8e5m2", "e5m2"},       {"fp8e5m2", "e5m2"},
                                         {"float8e5m2", "e5m2"},   {"mxfp8e5m2", "e5m2"},
                                         {"e2m1", "e2m1"},         {"f4", "e2m1"},
                                         {"fp4", "e2m1"},          {"fp4e2m1", "e2m1"},
                                         {"f4e2m1", "e2m1"},       {"float4e2m1", "e2m1"},
                                         {"float4e2m1fn", "e2m1"}, {"float4e2m1fnx2", "e2m1"},
                                         {"mxfp4", "e2m1"},        {"nvfp4", "e2m1"}};

bool Packed(const TensorEntry& tensor, const std::string& format) {
  return format == "e2m1" && tensor.dtype == DType::kU8;
}

// Returns true for the dtype F4. Its shape counts values, and each byte holds two values.
bool IsF4(const TensorEntry& tensor) { return tensor.dtype_name == "F4"; }
bool IsE8M0(const TensorEntry& tensor) { return tensor.dtype_name == "F8_E8M0"; }

DType BytesAs(const std::string& format) {
  if (format == "e4m3") return DType::kE4M3;
  return format == "e5m2" ? DType::kE5M2 : DType::kUnspecified;
}

absl::Status ReadBytes(const InputFile& file, const TensorEntry& entry, std::string* bytes) {
  bytes->resize(entry.bytes());
  return file.ReadAt(entry.begin, bytes->data(), bytes->size());
}

void Wrong(const TensorEntry& tensor, const std::string& expected, std::vector<Problem>* problems) {
  problems->push_back({tensor.declared_at, "expected " + tensor.name + " as " + expected +
                                               ", found " + tensor.dtype_name});
}

}  // namespace

std::string InputFormatOf(std::string_view text) {
  std::string plain;
  for (const char letter : text) {
    if (letter != '_' && letter != '-' && letter != ' ') plain += absl::ascii_tolower(letter);
  }
  if (plain.starts_with("torch.")) plain.erase(0, 6);
  for (const FormatSpelling& known : kSpellings) {
    if (plain == known.text) return known.format;
  }
  return "";
}

void CheckFactor(const TensorEntry& tensor, const std::string& format,
                 std::vector<Problem>* problems) {
  const bool four =
      Packed(tensor, format) || (IsF4(tensor) && (format.empty() || format == "e2m1"));
  const bool bytes = tensor.dtype == DType::kU8 && BytesAs(format) != DType::kUnspecified;
  if (four || bytes) return;
  if (tensor.dtype == DType::kU8) {
    Wrong(tensor, "a floating dtype (for U8 set input_format: e2m1, e4m3 or e5m2)", problems);
    return;
  }
  CheckDType(tensor, Content::kAnyFloating, problems);
}

std::vector<int64_t> FactorShape(const TensorEntry& tensor, const std::string& format) {
  std::vector<int64_t> shape = tensor.shape;
  if (Packed(tensor, format) && !shape.empty()) shape.back() *= 2;
  return shape;
}

absl::Status LoadFactor(const InputFile& file, const TensorEntry& entry, const std::string& format,
                        v1::Tensor* tensor) {
  if (!Packed(entry, format) && !IsF4(entry)) {
    if (absl::Status s = LoadTensor(file, entry, tensor); !s.ok()) return s;
    if (entry.dtype == DType::kU8) tensor->set_dtype(static_cast<v1::DType>(BytesAs(format)));
    return absl::OkStatus();
  }
  std::string packed;
  if (absl::Status s = ReadBytes(file, entry, &packed); !s.ok()) return s;
  tensor->set_dtype(v1::DTYPE_E4M3);
  for (const int64_t extent : FactorShape(entry, format)) tensor->add_shape(extent);
  std::string& values = *tensor->mutable_data();
  values.resize(2 * packed.size());
  for (size_t i = 0; i < packed.size(); ++i) {
    const auto two = static_cast<uint8_t>(packed[i]);
    values[2 * i] = static_cast<char>(FloatToE4M3(static_cast<float>(E2M1Value(two & 15))));
    values[2 * i + 1] = static_cast<char>(FloatToE4M3(static_cast<float>(E2M1Value(two >> 4))));
  }
  return absl::OkStatus();
}

void CheckScale(const TensorEntry& tensor, const std::string& scale_format,
                std::vector<Problem>* problems) {
  if (IsE8M0(tensor)) return;
  if (tensor.dtype == DType::kU8) {
    if (scale_format != "e8m0" && scale_format != "e4m3")
      Wrong(tensor, "F32 (for U8 set scale_format: e8m0 or e4m3)", problems);
    return;
  }
  CheckDType(tensor, Content::kAnyFloating, problems);
}

absl::Status LoadScale(const InputFile& file, const TensorEntry& entry,
                       const std::string& scale_format, v1::Tensor* tensor) {
  std::string bytes;
  if (absl::Status s = ReadBytes(file, entry, &bytes); !s.ok()) return s;
  const bool exponents = IsE8M0(entry) || (entry.dtype == DType::kU8 && scale_format == "e8m0");
  const DType dtype = entry.dtype == DType::kU8 ? DType::kE4M3 : entry.dtype;
  const size_t width = exponents ? 1 : DTypeSize(dtype);
  tensor->set_dtype(v1::DTYPE_F32);
  for (const int64_t extent : entry.shape) tensor->add_shape(extent);
  std::string& values = *tensor->mutable_data();
  const size_t count = bytes.size() / width;
  values.resize(count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    const auto value =
        static_cast<float>(exponents ? E8M0Value(static_cast<uint8_t>(bytes[i]))
                                     : LoadDouble(bytes.data(), dtype, static_cast<int64_t>(i)));
    std::memcpy(&values[i * sizeof value], &value, sizeof value);
  }
  return absl::OkStatus();
}

}  // namespace plumbline::audit
