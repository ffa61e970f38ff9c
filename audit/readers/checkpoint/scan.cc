#include "audit/readers/checkpoint/scan.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/parallel.h"
#include "kernels/evidence/tensor.h"
#include "kernels/tensor/meter.h"

namespace plumbline::audit {
namespace {

using Sink = TensorScan::Sink;

// Returns the number of threads: several from 2 MiB on, because starting a thread takes about 50
// microseconds, and reading 1 MiB about 500.
int ThreadsOf(size_t bytes) {
  constexpr size_t kForSeveral = size_t{2} << 20;
  return bytes < kForSeveral ? 1 : ThreadsFor(kLargestLiveSample + 1);
}

// Reads bytes of a file, with several threads if there are many.
absl::Status ReadBytes(const InputFile& file, uint64_t at, std::byte* out, size_t size) {
  std::vector<absl::Status> read(static_cast<size_t>(ThreadsOf(size)));
  ParallelParts(static_cast<int64_t>(size), static_cast<int>(read.size()),
                [&](int part, int64_t first, int64_t last) {
                  read[static_cast<size_t>(part)] = file.ReadAt(
                      at + static_cast<uint64_t>(first), reinterpret_cast<char*>(out) + first,
                      static_cast<size_t>(last - first));
                });
  for (absl::Status& status : read) {
    if (!status.ok()) return std::move(status);
  }
  return absl::OkStatus();
}

void SwapBytes(std::byte* data, size_t bytes, size_t width) {
  for (size_t i = 0; i + width <= bytes; i += width) std::reverse(data + i, data + i + width);
}

// Walks a tensor that is not dense, in C order, in boxes that fit in the buffers. Reads a box in
// storage order, with the longest stride as the outermost loop, and copies it to C order.
class StridedWalk {
 public:
  StridedWalk(const InputFile& file, const StoredTensor& tensor, std::vector<std::byte>* dense,
              std::vector<std::byte>* source, const Sink& sink)
      : file_(file), tensor_(tensor), dense_(*dense), source_(*source), sink_(sink) {
    size_ = DTypeSize(tensor.dtype);
  }

  absl::Status Walk() {
    dense_.resize(TensorScan::kPieceBytes);
    if (absl::Status s = Box(tensor_.begin, tensor_.shape, 0); !s.ok()) return s;
    return Flush();
  }

 private:
  // Reads the elements of `shape` from byte `at` on. The axes before `axis` have extent 1.
  absl::Status Box(uint64_t at, std::vector<int64_t> shape, size_t axis) {
    uint64_t inner = size_;  // bytes of one slice of `axis`
    for (size_t i = axis + 1; i < shape.size(); ++i) inner *= static_cast<uint64_t>(shape[i]);
    const uint64_t most = std::max<uint64_t>(TensorScan::kPieceBytes / 2 / inner, 1);
    if (axis == shape.size()) return Piece(at, shape);
    const int64_t extent = shape[axis];
    for (int64_t i = 0; i < extent; i += static_cast<int64_t>(most)) {
      shape[axis] = std::min(extent - i, static_cast<int64_t>(most));
      const uint64_t from = at + static_cast<uint64_t>(i * tensor_.stride[axis]) * size_;
      const bool fits = inner * static_cast<uint64_t>(shape[axis]) <= TensorScan::kPieceBytes / 2;
      absl::Status s = fits ? Piece(from, shape) : Box(from, shape, axis + 1);
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // Reads a box of at most half of the buffer.
  absl::Status Piece(uint64_t at, const std::vector<int64_t>& shape) {
    TensorView view;
    view.dtype = tensor_.dtype;
    view.rank = static_cast<int>(shape.size());
    std::vector<size_t> order(shape.size());  // axes by falling stride, in storage order
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return tensor_.stride[a] > tensor_.stride[b]; });
    std::vector<size_t> axes;  // the axes of `order` that have more than one stored element
    int64_t count = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      const size_t a = order[i];
      view.shape[a] = shape[a];
      const bool moves = tensor_.stride[a] != 0 && shape[a] > 1;
      view.stride[a] = moves ? count : 0;
      if (!moves) continue;
      count *= shape[a];
      axes.insert(axes.begin(), a);
    }
    source_.resize(static_cast<size_t>(count) * size_);
    std::byte* out = source_.data();
    if (absl::Status s = Read(at, shape, axes, 0, &out); !s.ok()) return s;
    view.data = source_.data();
    const uint64_t bytes = PackedBytes(view);
    if (fill_ + bytes > dense_.size()) {
      if (absl::Status s = FlushWhole(); !s.ok()) return s;
    }
    CopyDense(view, dense_.data() + fill_);
    fill_ += bytes;
    return absl::OkStatus();
  }

  // Reads the elements along axes[k], axes[k + 1], ... from byte `at` on to *out, and advances
  // *out.
  absl::Status Read(uint64_t at, const std::vector<int64_t>& shape, const std::vector<size_t>& axes,
                    size_t k, std::byte** out) {
    if (axes.empty()) return ReadRun(at, 1, 1, out);
    const size_t a = axes[k];
    const auto step = static_cast<uint64_t>(tensor_.stride[a]) * size_;
    if (k + 1 == axes.size()) return ReadRun(at, shape[a], tensor_.stride[a], out);
    for (int64_t i = 0; i < shape[a]; ++i) {
      const uint64_t from = at + static_cast<uint64_t>(i) * step;
      if (absl::Status s = Read(from, shape, axes, k + 1, out); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // Reads `count` elements, `stride` apart. If they are near, reads the bytes between them too.
  absl::Status ReadRun(uint64_t at, int64_t count, int64_t stride, std::byte** out) {
    constexpr uint64_t kNear = 4096, kRun = uint64_t{1} << 20;
    const uint64_t step = static_cast<uint64_t>(stride) * size_;
    const uint64_t group = step <= kNear ? std::max<uint64_t>(kRun / step, 1) : 1;
    for (uint64_t i = 0; i < static_cast<uint64_t>(count); i += group) {
      const uint64_t n = std::min<uint64_t>(group, static_cast<uint64_t>(count) - i);
      const uint64_t bytes = (n - 1) * step + size_;
      if (step == size_) {
        if (absl::Status s = ReadBytes(file_, at + i * step, *out, bytes); !s.ok()) return s;
      } else {
        run_.resize(bytes);
        if (absl::Status s = ReadBytes(file_, at + i * step, run_.data(), bytes); !s.ok()) return s;
        for (uint64_t e = 0; e < n; ++e)
          std::memcpy(*out + e * size_, run_.data() + e * step, size_);
      }
      *out += n * size_;
    }
    return absl::OkStatus();
  }

  // Flushes the largest multiple of the meter's unit, and keeps the rest.
  absl::Status FlushWhole() {
    const size_t unit = static_cast<size_t>(TensorMeter::kPieceElements) * size_;
    const size_t whole = fill_ / unit * unit;
    if (absl::Status s = Give(whole); !s.ok()) return s;
    std::memmove(dense_.data(), dense_.data() + whole, fill_ - whole);
    fill_ -= whole;
    return absl::OkStatus();
  }
  absl::Status Flush() { return Give(std::exchange(fill_, 0)); }

  absl::Status Give(size_t bytes) {
    if (bytes == 0) return absl::OkStatus();
    if (tensor_.swapped) SwapBytes(dense_.data(), bytes, size_);
    return sink_(dense_.data(), bytes);
  }

  const InputFile& file_;
  const StoredTensor& tensor_;
  std::vector<std::byte>& dense_;
  std::vector<std::byte>& source_;
  const Sink& sink_;
  std::vector<std::byte> run_;
  size_t size_ = 0;
  size_t fill_ = 0;  // bytes used in dense_
};

}  // namespace

absl::Status TensorScan::Measure(const InputFile& file, const StoredTensor& tensor,
                                 TensorStats* stats, RowDigests* rows, ElementSample* sample) {
  TensorMeter meter(tensor.dtype);
  const size_t width = DTypeSize(tensor.dtype);
  absl::Status status = Stream(file, tensor, [&](const std::byte* data, size_t bytes) {
    if (rows != nullptr) rows->Add(data, bytes);
    if (sample != nullptr) sample->Add(data, bytes);
    return meter.Add(data, static_cast<int64_t>(bytes / width), ThreadsOf(bytes));
  });
  if (status.ok()) *stats = meter.Finish();
  return status;
}

absl::Status TensorScan::Read(const InputFile& file, const StoredTensor& tensor,
                              std::vector<std::byte>* elements) {
  elements->clear();
  elements->reserve(static_cast<size_t>(tensor.bytes()));
  return Stream(file, tensor, [&](const std::byte* data, size_t bytes) {
    elements->insert(elements->end(), data, data + bytes);
    return absl::OkStatus();
  });
}

absl::Status TensorScan::Stream(const InputFile& file, const StoredTensor& tensor,
                                const Sink& sink) {
  const uint64_t bytes = tensor.bytes();
  if (bytes > 0 && !IsDense(tensor))
    return StridedWalk(file, tensor, &dense_, &source_, sink).Walk();
  dense_.resize(static_cast<size_t>(std::min<uint64_t>(bytes, kPieceBytes)));
  for (uint64_t at = 0; at < bytes; at += dense_.size()) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(bytes - at, dense_.size()));
    absl::Status status = ReadBytes(file, tensor.begin + at, dense_.data(), size);
    if (!status.ok()) return status;
    if (tensor.swapped) SwapBytes(dense_.data(), size, DTypeSize(tensor.dtype));
    if (status = sink(dense_.data(), size); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace plumbline::audit
