#include "kernels/tensor/sample.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "kernels/sample/gather.h"

namespace plumbline {
namespace {

void ChooseRows(const TensorView& tensor, uint32_t most, TensorSample* sample) {
  sample->whole_rows = true;
  sample->width = tensor.rank == 0 ? 1 : tensor.shape[static_cast<size_t>(tensor.rank - 1)];
  if (sample->count == 0) return;
  const auto row_bytes = static_cast<uint64_t>(sample->width) * DTypeSize(tensor.dtype);
  if (row_bytes > sample->limit) {
    sample->row_bytes = row_bytes;
    return;
  }
  const int64_t all = static_cast<int64_t>(sample->count) / sample->width;
  const auto fitting = static_cast<int64_t>(sample->limit / row_bytes);
  sample->rows = std::min({all, fitting, std::max<int64_t>(most / sample->width, 1)});
  sample->first = static_cast<int64_t>(
      SampleIndex(sample->key, static_cast<uint64_t>(all - sample->rows + 1), 0));
}

}  // namespace

void TensorSample::Indices(uint64_t* out) const {
  const std::span<uint64_t> all(out, static_cast<size_t>(elements()));
  if (!whole_rows) return DrawIndices(key, count, all);
  std::iota(all.begin(), all.end(), static_cast<uint64_t>(first * width));
}

TensorSample ChooseSample(const TensorView& tensor, int64_t count, bool whole_rows, uint64_t key,
                          uint32_t most, uint64_t limit) {
  TensorSample sample;
  sample.key = key;
  sample.count = static_cast<uint64_t>(count);
  sample.limit = limit;
  if (whole_rows) {
    ChooseRows(tensor, most, &sample);
  } else {
    sample.drawn = std::min({sample.count, uint64_t{most}, limit / DTypeSize(tensor.dtype)});
  }
  return sample;
}

}  // namespace plumbline
