#include "audit/readers/dumps/tensor_blocks.h"

#include <array>
#include <charconv>
#include <cstring>
#include <string>

#include "absl/strings/ascii.h"
#include "audit/readers/dumps/matmul_formats.h"
#include "audit/readers/dumps/metadata.h"
#include "audit/readers/dumps/tensors.h"
#include "kernels/evidence/block_fit.h"

namespace plumbline::audit {
namespace {

constexpr int64_t kLongestBlock = int64_t{1} << 20;
constexpr std::array<const char*, 3> kBlockScaleFormats = {"f32", "e8m0", "e4m3"};

// Parses "32" or "128x128". Otherwise returns false.
bool ParseBlock(const std::string& text, BlockFormat* format) {
  int64_t extents[2] = {0, 0};
  int n = 0;
  const char *at = text.data(), *end = at + text.size();
  while (n < 2) {
    const auto parsed = std::from_chars(at, end, extents[n]);
    if (parsed.ec != std::errc() || extents[n] < 1 || extents[n] > kLongestBlock) return false;
    ++n;
    at = parsed.ptr;
    if (at == end) break;
    if (*at++ != 'x') return false;
  }
  if (at != end) return false;
  format->rows = n == 2 ? extents[0] : 1;
  format->columns = extents[n - 1];
  return true;
}

// Returns the named format, or nullptr. Ignores case, hyphens and underscores.
const NamedBlockFormat* Named(const std::string& text) {
  std::string plain;
  for (const char letter : text) {
    if (letter != '-' && letter != '_') plain += absl::ascii_tolower(letter);
  }
  for (const NamedBlockFormat& named : BlockFormats()) {
    std::string name;
    for (const char letter : named.name) {
      if (letter != '-') name += letter;
    }
    if (plain == name) return &named;
  }
  return nullptr;
}

BlockScale ScaleNamed(int choice) {
  return choice == 1 ? BlockScale::kPowerOfTwo : choice == 2 ? BlockScale::kE4M3 : BlockScale::kF32;
}

// Returns true if the values are stored in this format: two per byte, or bytes of the element's own
// dtype.
bool IsStored(const TensorEntry& values, const std::string& element) {
  if (element == "e2m1") return values.dtype == DType::kU8 || values.dtype_name == "F4";
  return values.dtype == (element == "e5m2" ? DType::kE5M2 : DType::kE4M3);
}

// Loads a scale tensor as floats.
absl::Status LoadFloats(const InputFile& file, const TensorEntry& entry, const std::string& format,
                        std::vector<float>* out) {
  v1::Tensor tensor;
  if (absl::Status s = LoadScale(file, entry, format, &tensor); !s.ok()) return s;
  out->resize(tensor.data().size() / sizeof(float));
  std::memcpy(out->data(), tensor.data().data(), tensor.data().size());
  return absl::OkStatus();
}

}  // namespace

std::optional<BlockFormat> ReadBlocks(const SafetensorsHeader& header,
                                      std::vector<Problem>* problems) {
  const DumpMetadata metadata(header, problems);
  const MetadataEntry* target = header.Metadata("target_format");
  const MetadataEntry* block = header.Metadata("block");
  const NamedBlockFormat* named = target == nullptr ? nullptr : Named(target->value);
  if (named == nullptr && block == nullptr) return std::nullopt;
  BlockFormat format;
  format.scale = BlockScale::kF32;
  if (named != nullptr) format = named->format;
  const std::string element =
      named != nullptr || target == nullptr ? format.element : InputFormatOf(target->value);
  if (element != "e4m3" && element != "e5m2" && element != "e2m1")
    metadata.Wrong("target_format", *target, "mxfp8, mxfp4, nvfp4, or e4m3, e5m2, e2m1 of blocks");
  else
    format.element = element;
  if (block != nullptr && !ParseBlock(block->value, &format))
    metadata.Wrong("block", *block, "the size of a block: 32, 1x128 or 128x128");
  const int scale = metadata.Choice("scale_format", kBlockScaleFormats, -1);
  if (scale >= 0) format.scale = ScaleNamed(scale);
  const TensorEntry* values = header.Find("values");
  format.stored = values != nullptr && IsStored(*values, format.element);
  return format;
}

void CheckBlockScales(const SafetensorsHeader& header, const TensorEntry& values,
                      std::vector<Problem>* problems) {
  std::vector<Problem> none;  // not used: these problems are reported when the options are read
  const std::optional<BlockFormat> format = ReadBlocks(header, &none);
  if (format) CheckFactor(values, format->element, problems);
  for (const char* name : {kScale, kTensorScale}) {
    const TensorEntry* scale = header.Find(name);
    if (scale == nullptr) continue;
    if (!format) {
      problems->push_back(
          {scale->declared_at,
           std::string("expected target_format mxfp8, mxfp4, nvfp4, or block, with ") + name});
      return;
    }
    CheckScale(*scale, BlockScaleName(format->scale), problems);
  }
  const TensorEntry* scale = header.Find(kScale);
  if (scale == nullptr) return;
  TensorView view;
  const std::vector<int64_t> shape = FactorShape(values, format->element);
  if (shape.size() > TensorView::kMaxRank) return;  // the check of the values reports it
  view.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  const BlockGrid grid = GridOf(view, *format);
  int64_t found = 1;
  for (const int64_t extent : scale->shape) found *= extent;
  if (found == grid.rows * grid.columns) return;
  problems->push_back({scale->declared_at, "expected scale of " + std::to_string(grid.rows) +
                                               " x " + std::to_string(grid.columns) +
                                               " blocks, found " + ShapeText(scale->shape)});
}

absl::Status LoadBlockFits(const InputFile& file, const SafetensorsHeader& header,
                           const TensorView& values, v1::TensorState* out) {
  if (!IsFloating(values.dtype)) return absl::OkStatus();
  std::vector<Problem> none;
  const std::optional<BlockFormat> format = ReadBlocks(header, &none);
  if (!format) return FillBlockFits(values, std::nullopt, out);
  std::vector<float> scales, one;
  const std::string held = BlockScaleName(format->scale);
  if (const TensorEntry* scale = header.Find(kScale)) {
    if (absl::Status s = LoadFloats(file, *scale, held, &scales); !s.ok()) return s;
  }
  // The scale of the whole tensor is f32, also if its blocks have scales of another format.
  if (const TensorEntry* scale = header.Find(kTensorScale)) {
    if (absl::Status s = LoadFloats(file, *scale, "f32", &one); !s.ok()) return s;
  }
  DeclaredBlocks declared{*format, scales, one.empty() ? 0 : static_cast<double>(one[0])};
  return FillBlockFits(values, declared, out);
}

}  // namespace plumbline::audit
