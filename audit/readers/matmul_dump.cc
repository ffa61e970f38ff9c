#include "audit/readers/matmul_dump.h"

#include <array>
#include <limits>

#include "audit/readers/dump_metadata.h"
#include "audit/readers/dump_tensors.h"
#include "base/load.h"

namespace plumbline::audit {
namespace {

constexpr uint64_t kMaxI64 = std::numeric_limits<int64_t>::max();
constexpr std::array<const char*, 1> kFormats = {"tf32"};
constexpr std::string_view kKeys[] = {"input_format", "declared_accumulator", "rows", "columns",
                                      "library"};
constexpr std::string_view kTensors[] = {"a", "b", "d", "c", "offsets", "a_index", "b_index"};

// Checks as it reads.
v1::MatmulConfig ReadConfig(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  const DumpMetadata metadata(header, problems);
  v1::MatmulConfig config;
  if (metadata.Has("input_format") && metadata.Choice("input_format", kFormats, -1) == 0)
    config.set_input_format("tf32");
  config.set_declared_accumulator(
      static_cast<v1::DType>(metadata.DTypeNamed("declared_accumulator")));
  config.set_rows(metadata.Whole("rows", 1, kMaxI64, 0));
  config.set_columns(metadata.Whole("columns", 1, kMaxI64, 0));
  config.set_library(metadata.Text("library"));
  const TensorEntry* a = header.Find("a");
  if (a != nullptr && a->shape.size() == 2) config.set_inner(static_cast<uint64_t>(a->shape[1]));
  return config;
}

bool LooksLikeMatmul(const SafetensorsHeader& header) {
  return header.Find("a") != nullptr && header.Find("b") != nullptr && header.Find("d") != nullptr;
}

const TensorEntry* Required(const SafetensorsHeader& header, const char* name, const char* axes,
                            std::vector<Problem>* problems) {
  const TensorEntry* tensor = header.Find(name);
  if (tensor == nullptr) {
    problems->push_back(
        {0, std::string("expected a tensor ") + name + " of shape " + axes + ", found none"});
  }
  return tensor;
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

// m: elements of d, one for each row of a unless a_index says which.
int64_t Samples(const SafetensorsHeader& header) {
  const TensorEntry* index = header.Find("a_index");
  const std::vector<int64_t>& shape = (index != nullptr ? index : header.Find("a"))->shape;
  return shape.empty() ? 1 : shape[0];
}

void CheckMatmulDump(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  CheckDeclared(header, ReadConfig(header, problems), problems);
  CheckSpelling(header, kKeys, kTensors, problems);
  const TensorEntry* a = Required(header, "a", "[m,K]", problems);
  const TensorEntry* b = Required(header, "b", "[m,K]", problems);
  const TensorEntry* d = Required(header, "d", "[m]", problems);
  const TensorEntry* c = header.Find("c");
  const TensorEntry* offsets = header.Find("offsets");
  const TensorEntry* a_index = header.Find("a_index");
  const TensorEntry* b_index = header.Find("b_index");
  for (const TensorEntry* tensor : {a, b, d, c}) {
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
  CheckTotalSize({a, b, d, c, offsets, a_index, b_index}, "matmul tensors",
                 "dump fewer elements a file", problems);
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
  std::vector<Problem> none;  // the header has been checked
  v1::Matmul& matmul = *evidence->mutable_matmul();
  *matmul.mutable_config() = ReadConfig(header, &none);
  v1::MatmulSample& sample = *matmul.mutable_sample();
  const std::pair<const char*, v1::Tensor* (v1::MatmulSample::*)()> parts[] = {
      {"a", &v1::MatmulSample::mutable_a},
      {"b", &v1::MatmulSample::mutable_b},
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
