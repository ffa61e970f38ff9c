#include "audit/readers/checkpoint/block_formats.h"

#include <algorithm>
#include <vector>

#include "kernels/evidence/block_fit.h"

namespace plumbline::audit {
namespace {

constexpr int64_t kMostOfGroup = int64_t{1} << 20;  // limit of elements per group
constexpr int64_t kTile = 128;                      // number of rows in the largest block

void Add(const v1::BlockScaleFit& from, v1::BlockScaleFit* to) {
  to->set_blocks(to->blocks() + from.blocks());
  to->set_values(to->values() + from.values());
  to->set_flushed(to->flushed() + from.flushed());
  to->set_saturated(to->saturated() + from.saturated());
  to->set_mass(to->mass() + from.mass());
  to->set_flushed_mass(to->flushed_mass() + from.flushed_mass());
  to->set_cut_mass(to->cut_mass() + from.cut_mass());
  to->set_stale(to->stale() + from.stale());
  to->set_clipped(to->clipped() + from.clipped());
  to->set_spent(to->spent() + from.spent());
  to->set_unusable(to->unusable() + from.unusable());
}

}  // namespace

absl::Status MeasureBlocks(const InputFile& file, const StoredTensor& tensor, TensorScan* scan,
                           v1::TensorState* out) {
  if (tensor.shape.size() < 2 || tensor.elements() == 0) return absl::OkStatus();
  const int64_t row = tensor.elements() / tensor.shape[0];
  int64_t rows = kMostOfGroup / row;
  if (rows == 0) return absl::OkStatus();
  if (rows > kTile) rows -= rows % kTile;
  std::vector<std::byte> elements;
  for (int64_t first = 0; first < tensor.shape[0]; first += rows) {
    StoredTensor group = tensor;
    group.shape[0] = std::min(rows, tensor.shape[0] - first);
    group.begin += static_cast<uint64_t>(first * tensor.stride[0]) * DTypeSize(tensor.dtype);
    if (absl::Status s = scan->Read(file, group, &elements); !s.ok()) return s;
    const std::vector<int64_t> stride = DenseStrides(group.shape);
    TensorView view;
    view.data = elements.data();
    view.dtype = tensor.dtype;
    view.rank = static_cast<int>(group.shape.size());
    std::copy(group.shape.begin(), group.shape.end(), view.shape.begin());
    std::copy(stride.begin(), stride.end(), view.stride.begin());
    v1::TensorState part;
    if (absl::Status s = FillBlockFits(view, std::nullopt, &part); !s.ok()) return s;
    for (int i = 0; i < part.block_fits_size(); ++i) {
      if (first == 0) {
        *out->add_block_fits() = part.block_fits(i);
      } else if (i < out->block_fits_size()) {
        Add(part.block_fits(i), out->mutable_block_fits(i));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace plumbline::audit
