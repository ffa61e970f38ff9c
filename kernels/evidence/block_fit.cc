#include "kernels/evidence/block_fit.h"

#include <array>

#include "base/half.h"

namespace plumbline {
namespace {

constexpr int64_t kMostUnasked = int64_t{1} << 24;

void Fill(const BlockFormat& format, const BlockScaleCounts& counts, v1::BlockScaleFit* out) {
  out->set_element(format.element);
  out->set_scale_format(BlockScaleName(format.scale));
  out->set_columns(static_cast<uint32_t>(format.columns));
  out->set_rows(static_cast<uint32_t>(format.rows));
  out->set_stored(format.stored);
  out->set_blocks(counts.blocks);
  out->set_values(counts.values);
  out->set_flushed(counts.flushed);
  out->set_saturated(counts.saturated);
  out->set_mass(counts.mass);
  out->set_flushed_mass(counts.flushed_mass);
  out->set_cut_mass(counts.cut_mass);
  out->set_stale(counts.stale);
  out->set_clipped(counts.clipped);
  out->set_spent(counts.spent);
  out->set_unusable(counts.unusable);
}

}  // namespace

std::span<const NamedBlockFormat> BlockFormats() {
  static const std::array<NamedBlockFormat, 6> formats = {{
      {"mxfp8", {"e4m3", BlockScale::kPowerOfTwo, 32, 1}},
      {"mxfp8-e5m2", {"e5m2", BlockScale::kPowerOfTwo, 32, 1}},
      {"mxfp4", {"e2m1", BlockScale::kPowerOfTwo, 32, 1}},
      {"nvfp4", {"e2m1", BlockScale::kE4M3, 16, 1}},
      {"fp8-1x128", {"e4m3", BlockScale::kF32, 128, 1}},
      {"fp8-128x128", {"e4m3", BlockScale::kF32, 128, 128}},
  }};
  return formats;
}

const char* BlockScaleName(BlockScale scale) {
  if (scale == BlockScale::kPowerOfTwo) return "e8m0";
  return scale == BlockScale::kE4M3 ? "e4m3" : "f32";
}

absl::Status FillBlockFits(const TensorView& tensor, const std::optional<DeclaredBlocks>& declared,
                           v1::TensorState* out) {
  out->clear_block_fits();
  BlockScaleCounts counts;
  if (declared) {
    absl::Status s = MeasureBlockFit(tensor, declared->format, declared->scales,
                                     declared->tensor_scale, &counts);
    if (!s.ok()) return s;
    v1::BlockScaleFit* fit = out->add_block_fits();
    Fill(declared->format, counts, fit);
    fit->set_declared(true);
    fit->set_recorded(!declared->scales.empty());
  }
  const bool wide = IsFloating(tensor.dtype) && FormatOf(tensor.dtype).precision > 4;
  if (!wide || tensor.elements() > kMostUnasked) return absl::OkStatus();
  for (const NamedBlockFormat& named : BlockFormats()) {
    if (absl::Status s = MeasureBlockFit(tensor, named.format, {}, 0, &counts); !s.ok()) return s;
    Fill(named.format, counts, out->add_block_fits());
  }
  return absl::OkStatus();
}

}  // namespace plumbline
