#include "audit/readers/dumps/matmul.h"

#include <array>
#include <limits>
#include <string>
#include <utility>

#include "audit/readers/dumps/matmul_formats.h"
#include "audit/readers/dumps/metadata.h"
#include "audit/readers/dumps/tensors.h"
#include "base/load.h"

namespace plumbline::audit {
namespace {

constexpr uint64_t kMostBlock = uint64_t{1} << 20;
constexpr std::array<const char*, 3> kScaleFormats = {"f32", "e8m0", "e4m3"};
constexpr std::array<const char*, 2> kRoundings = {"nearest", "stochastic"};
constexpr std::string_view kMatmulKeys[] = {
    "input_format", "declared_accumulator", "rows",           "columns", "library", "scale",
    "block",        "scale_format",         "output_rounding"};
constexpr std::string_view kMatmulTensors[] = {
    "a",       "b",       "d",       "c",       "offsets",        "scale",
    "a_index", "b_index", "a_scale", "b_scale", "a_tensor_scale", "b_tensor_scale"};
// Each scale, with its field in the sample.
using MatmulPart = v1::Tensor* (v1::MatmulSample::*)();
constexpr std::pair<const char*, MatmulPart> kScales[] = {
    {"scale", &v1::MatmulSample::mutable_scale},
    {"a_scale", &v1::MatmulSample::mutable_a_scale},
    {"b_scale", &v1::MatmulSample::mutable_b_scale},
    {"a_tensor_scale", &v1::MatmulSample::mutable_a_tensor_scale},
    {"b_tensor_scale", &v1::MatmulSample::mutable_b_tensor_scale}};

std::string FormatOfInputs(const SafetensorsHeader& header, const DumpMetadata& metadata) {
  const MetadataEntry* entry = header.Metadata("input_format");
  if (entry == nullptr) return "";
  std::string format = InputFormatOf(entry->value);
  if (format.empty())
    metadata.Wrong("input_format", *entry, "tf32, f32, fp16, bf16, e4m3, e5m2 or e2m1");
  return format;
}

// Returns the factor of d, decimal; 0 if absent.
double ReadScale(const SafetensorsHeader& header, const DumpMetadata& metadata) {
  if (!metadata.Has("scale")) return 0;
  const double scale = metadata.Number("scale", 1);
  if (scale == 0) metadata.Wrong("scale", *header.Metadata("scale"), "a factor that is not 0");
  return scale;
}

// Reads and checks the configuration.
v1::MatmulConfig ReadMatmulConfig(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  const DumpMetadata metadata(header, problems);
  v1::MatmulConfig config;
  config.set_input_format(FormatOfInputs(header, metadata));
  config.set_scale(ReadScale(header, metadata));
  config.set_block(static_cast<uint32_t>(metadata.Whole("block", 1, kMostBlock, 0)));
  if (metadata.Choice("scale_format", kScaleFormats, -1) >= 0)
    config.set_scale_format(metadata.Text("scale_format"));
  if (metadata.Choice("output_rounding", kRoundings, -1) >= 0)
    config.set_output_rounding(metadata.Text("output_rounding"));
  config.set_declared_accumulator(
      static_cast<v1::DType>(metadata.DTypeNamed("declared_accumulator")));
  config.set_rows(metadata.Whole("rows", 1, kMaxI64, 0));
  config.set_columns(metadata.Whole("columns", 1, kMaxI64, 0));
  config.set_library(metadata.Text("library"));
  const TensorEntry* a = header.Find("a");
  if (a != nullptr && a->shape.size() == 2)
    config.set_inner(static_cast<uint64_t>(FactorShape(*a, config.input_format())[1]));
  return config;
}

bool LooksLikeMatmul(const SafetensorsHeader& header) {
  return header.Find("a") != nullptr && header.Find("b") != nullptr && header.Find("d") != nullptr;
}

void CheckDeclared(const SafetensorsHeader& header, const v1::MatmulConfig& config,
                   std::vector<Problem>* problems) {
  const auto declared = static_cast<DType>(config.declared_accumulator());
  if (config.declared_accumulator() == v1::DTYPE_UNSPECIFIED || IsFloating(declared)) return;
  const MetadataEntry* entry = header.Metadata("declared_accumulator");
  problems->push_back({entry->declared_at,
                       "expected metadata declared_accumulator to be a floating dtype, found \"" +
                           entry->value + "\""});
}

// Returns m, the number of elements of d: one for each row of `a`, or one for each index if a_index
// selects rows.
int64_t Samples(const SafetensorsHeader& header) {
  const TensorEntry* index = header.Find("a_index");
  const std::vector<int64_t>& shape = (index != nullptr ? index : header.Find("a"))->shape;
  return shape.empty() ? 1 : shape[0];
}

// Checks that a factor's scales have its number of rows, and ceil(K / block) blocks.
void CheckScales(const SafetensorsHeader& header, const v1::MatmulConfig& config,
                 std::vector<Problem>* problems) {
  for (const auto& [name, part] : kScales) {
    const TensorEntry* tensor = header.Find(name);
    if (tensor == nullptr) continue;
    CheckScale(*tensor, config.scale_format(), problems);
    const std::string which = name;
    if (which == "a_tensor_scale" || which == "b_tensor_scale") {
      CheckShape(*tensor, "[1]", {1}, problems);
    } else if (which == "scale") {
      if (tensor->shape != std::vector<int64_t>{1})
        CheckShape(*tensor, "[1] or [m]", {Samples(header)}, problems);
    } else if (config.block() == 0) {
      problems->push_back({tensor->declared_at, "expected metadata block with " + which +
                                                    ": products that share one scale"});
    } else {
      const TensorEntry* factor = header.Find(which.substr(0, 1));
      if (factor == nullptr || factor->shape.size() != 2) continue;
      const auto inner = static_cast<int64_t>(config.inner());
      const auto block = static_cast<int64_t>(config.block());
      CheckShape(*tensor, "[m,ceil(K/block)]", {factor->shape[0], (inner + block - 1) / block},
                 problems);
    }
  }
  if ((header.Find("a_scale") == nullptr) != (header.Find("b_scale") == nullptr)) {
    const TensorEntry* one = header.Find("a_scale");
    if (one == nullptr) one = header.Find("b_scale");
    problems->push_back({one->declared_at, "expected both or neither of a_scale and b_scale"});
  }
}

void CheckMatmulDump(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  const v1::MatmulConfig config = ReadMatmulConfig(header, problems);
  CheckDeclared(header, config, problems);
  CheckSpelling(header, kMatmulKeys, kMatmulTensors, problems);
  const TensorEntry* a = Required(header, "a", "[m,K]", problems);
  const TensorEntry* b = Required(header, "b", "[m,K]", problems);
  const TensorEntry* d = Required(header, "d", "[m]", problems);
  const TensorEntry* c = header.Find("c");
  const TensorEntry* offsets = header.Find("offsets");
  const TensorEntry* a_index = header.Find("a_index");
  const TensorEntry* b_index = header.Find("b_index");
  for (const TensorEntry* tensor : {a, b}) {
    if (tensor != nullptr) CheckFactor(*tensor, config.input_format(), problems);
  }
  for (const TensorEntry* tensor : {d, c}) {
    if (tensor != nullptr) CheckDType(*tensor, Content::kAnyFloating, problems);
  }
  for (const TensorEntry* tensor : {offsets, a_index, b_index}) {
    if (tensor != nullptr) CheckDType(*tensor, Content::kInteger, problems);
  }
  if ((a_index == nullptr) != (b_index == nullptr)) {
    problems->push_back({(a_index != nullptr ? a_index : b_index)->declared_at,
                         "expected both or neither of a_index and b_index"});
    return;
  }
  if (a == nullptr) return;
  if (a->shape.size() != 2 || a->shape[0] < 1 || a->shape[1] < 1) {
    problems->push_back(
        {a->declared_at, "expected a of shape [m,K], found " + ShapeText(a->shape)});
    return;
  }
  if (b != nullptr && a_index != nullptr && b->shape.size() == 2 && b->shape[0] > 0) {
    CheckShape(*b, "[q,K]", {b->shape[0], a->shape[1]}, problems);
  } else if (b != nullptr) {
    CheckShape(*b, "[m,K]", a->shape, problems);
  }
  for (const TensorEntry* tensor : {d, c, offsets, a_index, b_index}) {
    if (tensor != nullptr) CheckShape(*tensor, "[m]", {Samples(header)}, problems);
  }
  CheckScales(header, config, problems);
  CheckTotalSize({a, b, d, c, offsets, a_index, b_index}, "matmul tensors",
                 "dump fewer elements per file", problems);
}

std::string MatmulOp(const SafetensorsHeader& /*header*/) { return "matmul"; }

absl::Status CheckOffsets(const TensorEntry& entry, const v1::Tensor& offsets) {
  const size_t width = DTypeSize(entry.dtype);
  for (size_t i = 0; i < offsets.data().size() / width; ++i) {
    const int64_t value = LoadInt64(offsets.data().data(), entry.dtype, static_cast<int64_t>(i));
    if (value >= 0) continue;
    return AtByte(
        absl::InvalidArgumentError("expected offsets of at least 0, found " +
                                   std::to_string(value) + " at sample " + std::to_string(i)),
        entry.begin + i * width);
  }
  return absl::OkStatus();
}

absl::Status LoadMatmulDump(const InputFile& file, const SafetensorsHeader& header,
                            v1::Evidence* evidence) {
  std::vector<Problem> none;  // stays empty, because the header was checked before
  v1::Matmul& matmul = *evidence->mutable_matmul();
  *matmul.mutable_config() = ReadMatmulConfig(header, &none);
  v1::MatmulSample& sample = *matmul.mutable_sample();
  const std::string& format = matmul.config().input_format();
  absl::Status factors = LoadFactor(file, *header.Find("a"), format, sample.mutable_a());
  if (factors.ok()) factors = LoadFactor(file, *header.Find("b"), format, sample.mutable_b());
  if (!factors.ok()) return factors;
  for (const auto& [name, part] : kScales) {
    const TensorEntry* entry = header.Find(name);
    if (entry == nullptr) continue;
    absl::Status s = LoadScale(file, *entry, matmul.config().scale_format(), (sample.*part)());
    if (!s.ok()) return s;
  }
  // The dtype F4 identifies the format of its values.
  if (header.Find("a")->dtype_name == "F4") matmul.mutable_config()->set_input_format("e2m1");
  const std::pair<const char*, MatmulPart> parts[] = {
      {"d", &v1::MatmulSample::mutable_d},
      {"c", &v1::MatmulSample::mutable_c},
      {"offsets", &v1::MatmulSample::mutable_offsets},
      {"a_index", &v1::MatmulSample::mutable_a_index},
      {"b_index", &v1::MatmulSample::mutable_b_index}};
  for (const auto& [name, part] : parts) {
    const TensorEntry* entry = header.Find(name);
    if (entry == nullptr) continue;
    if (absl::Status s = LoadTensor(file, *entry, (sample.*part)()); !s.ok()) return s;
  }
  if (const TensorEntry* offsets = header.Find("offsets")) {
    if (absl::Status s = CheckOffsets(*offsets, sample.offsets()); !s.ok()) return s;
  }
  evidence->set_sample_size(static_cast<uint64_t>(Samples(header)));
  evidence->set_exercised(v1::EXERCISED_YES);
  return absl::OkStatus();
}

}  // namespace

const DumpKind kMatmulDump = {"matmul", LooksLikeMatmul, CheckMatmulDump, MatmulOp, LoadMatmulDump};

}  // namespace plumbline::audit
