#include "bench/gpu/gemm/gemm_dump.h"

#include <algorithm>
#include <vector>

#include "analysis/sums/random.h"
#include "base/half.h"
#include "bench/gpu/gemm/gemm_values.h"

namespace plumbline::bench {
namespace {

using audit::testing::Bytes;
using audit::testing::Dump;

constexpr int kMostSamples = 256;
constexpr uint64_t kSeed = 20;

const char* SafetensorsName(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kE4M3:
      return "F8_E4M3";
    default:
      return "F32";
  }
}

// Returns the number of rows, and of columns, whose factors fit. More than 16 give no more
// elements; if K is small, they give different sums, though.
int LinesOf(const Product& p) {
  constexpr size_t kMostBytes = size_t{256} << 10;
  const size_t line = static_cast<size_t>(p.shape.inner) * DTypeSize(p.input);
  const size_t most = line <= 512 ? 32 : 16;
  const size_t lines = std::clamp<size_t>(kMostBytes / (2 * line), 1, most);
  // For a 32-bit result, 64 elements distinguish the few possible arithmetics.
  const bool wide = DTypeSize(p.output) >= 4 && p.shape.inner >= 4096;
  return static_cast<int>(wide ? std::min<size_t>(lines, 8) : lines);
}

void FillNormal(DType dtype, size_t count, std::byte* out) {
  sums::Random random(kSeed);
  std::vector<double> values(count);
  for (double& value : values) value = RoundToFormat(random.Normal(), dtype);
  Encode(dtype, values, out);
}

// Sample i is a row and a column of the corner: each pair once, every row equally often.
struct Samples {
  std::vector<int32_t> row, column;
};
Samples Spread(int lines) {
  const int count = std::min(lines * lines, kMostSamples);
  const int step = lines * lines / count;
  Samples samples;
  for (int i = 0; i < count; ++i) {
    samples.row.push_back(i % lines);
    samples.column.push_back((i % lines + i / lines * step) % lines);
  }
  return samples;
}

std::string Picked(const Samples& samples, int lines, size_t width, const std::byte* d) {
  std::string bytes;
  for (size_t i = 0; i < samples.row.size(); ++i) {
    const auto at = static_cast<size_t>(samples.column[i] * lines + samples.row[i]);
    bytes.append(reinterpret_cast<const char*>(d) + at * width, width);
  }
  return bytes;
}

// Returns their offsets in D, in C order. The corner has D's last rows and first columns.
std::vector<int64_t> Offsets(const Samples& samples, int lines, const Shape& shape) {
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < samples.row.size(); ++i) {
    const int64_t row = shape.rows - lines + samples.row[i];
    offsets.push_back(row * shape.columns + samples.column[i]);
  }
  return offsets;
}

std::map<std::string, std::string> Metadata(const Product& p, const std::string& library) {
  std::map<std::string, std::string> metadata = {
      {"kind", "matmul"},
      {"run", "gpu_gemm"},
      {"layer", NameOf(p)},
      {"declared_accumulator", p.compute == Compute::k16F ? "f16" : "f32"},
      {"rows", std::to_string(p.shape.rows)},
      {"columns", std::to_string(p.shape.columns)},
      {"library", library}};
  if (p.compute == Compute::k32FFastTF32) metadata["input_format"] = "tf32";
  return metadata;
}

}  // namespace

absl::StatusOr<Dump> MatmulDump(const Product& product, const std::string& library,
                                Matmul* matmul) {
  const int lines = LinesOf(product);
  const size_t side = static_cast<size_t>(lines) * static_cast<size_t>(product.shape.inner);
  const size_t bytes = side * DTypeSize(product.input);
  FillNormal(product.input, 2 * side, matmul->factors());
  const std::byte* d = nullptr;
  if (absl::Status s = matmul->Compute(lines, &d); !s.ok()) return s;

  const Samples samples = Spread(lines);
  const auto count = static_cast<int64_t>(samples.row.size());
  const char* factors = reinterpret_cast<const char*>(matmul->factors());
  const char* input = SafetensorsName(product.input);
  Dump dump;
  dump.metadata = Metadata(product, library);
  dump.tensors = {{"a", input, {lines, product.shape.inner}, std::string(factors, bytes)},
                  {"b", input, {lines, product.shape.inner}, std::string(factors + bytes, bytes)},
                  {"d",
                   SafetensorsName(product.output),
                   {count},
                   Picked(samples, lines, DTypeSize(product.output), d)},
                  {"a_index", "I32", {count}, Bytes(samples.row)},
                  {"b_index", "I32", {count}, Bytes(samples.column)},
                  {"offsets", "I64", {count}, Bytes(Offsets(samples, lines, product.shape))}};
  return dump;
}

}  // namespace plumbline::bench
