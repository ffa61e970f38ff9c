#include "audit/checkpoints/tensor_change.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/half.h"
#include "base/load.h"

namespace plumbline::audit {
namespace {

// Converts elements to doubles.
void Widen(const std::byte* data, DType dtype, size_t count, std::vector<double>* out) {
  out->resize(count);
  double* to = out->data();
  if (dtype == DType::kF32) {
    for (size_t i = 0; i < count; ++i) to[i] = LoadRaw<float>(data, static_cast<int64_t>(i));
  } else if (dtype == DType::kBF16) {
    for (size_t i = 0; i < count; ++i)
      to[i] = BF16ToFloat(LoadRaw<uint16_t>(data, static_cast<int64_t>(i)));
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = LoadDouble(data, dtype, static_cast<int64_t>(i));
  }
}

class ChangeMeter {
 public:
  ChangeMeter(const Layout& layout, TensorChange* out) : out_(*out) {
    // If the pieces of ranks are not joined, each piece has different rows, so rows are not
    // counted.
    const bool rows = layout.shape.size() >= 2 && (!layout.copies || layout.pieces.size() == 1);
    if (!rows || layout.shape[0] < 2 || static_cast<uint64_t>(layout.shape[0]) > kMostRowsOfChange)
      return;
    rows_.resize(static_cast<size_t>(layout.shape[0]));
  }

  void Take(const Box& box, DType dtype_a, DType dtype_b, const std::vector<double>* before) {
    Widen(box.a, dtype_a, box.count, &a_);
    Widen(box.b, dtype_b, box.count, &b_);
    out_.count += box.count;
    cast_ = dtype_a != dtype_b;
    const bool same =
        dtype_a == dtype_b && std::memcmp(box.a, box.b, box.count * DTypeSize(dtype_a)) == 0;
    const size_t row = rows_.empty() ? box.count : box.count / static_cast<size_t>(box.shape[0]);
    for (size_t first = 0; first < box.count; first += row) {
      Sums sums = SumRow(box, first, std::min(row, box.count - first), same, before);
      out_.squares_a += sums.a;
      out_.squares_b += sums.b;
      out_.squares_change += sums.change;
      if (rows_.empty()) continue;
      Row& of_row = rows_[static_cast<size_t>(box.at[0]) + first / row];
      of_row.change += sums.change;
      of_row.weight += sums.a;
      of_row.differ |= sums.differ;
    }
    if (dtype_a == dtype_b && !same) CountBits(box, DTypeSize(dtype_a));
  }

  void Finish(bool with_before) {
    if (with_before && before_squares_ > 0 && along_squares_ > 0) {
      out_.cosine = along_ / std::sqrt(before_squares_ * along_squares_);
      out_.squares_before = before_squares_;
    }
    out_.rows = rows_.size();
    std::vector<MovedRow> moved;
    for (size_t i = 0; i < rows_.size(); ++i) {
      out_.rows_still += rows_[i].differ ? 0 : 1;
      if (rows_[i].change > 0)
        moved.push_back({i, std::sqrt(rows_[i].change), std::sqrt(rows_[i].weight)});
    }
    const size_t kept = std::min(moved.size(), kMovedRows);
    std::partial_sort(moved.begin(), moved.begin() + static_cast<int64_t>(kept), moved.end(),
                      [](const MovedRow& x, const MovedRow& y) {
                        return x.change * y.weight > y.change * x.weight;
                      });
    moved.resize(kept);
    out_.most = std::move(moved);
  }

 private:
  struct Row {
    double change = 0, weight = 0;
    bool differ = false;
  };
  struct Sums {
    double a = 0, b = 0, change = 0;
    bool differ = false;
  };

  Sums SumRow(const Box& box, size_t first, size_t count, bool same,
              const std::vector<double>* before) {
    Sums sums;
    for (size_t i = first; i < first + count; ++i) {
      const double a = a_[i], b = b_[i];
      if (!std::isfinite(a) || !std::isfinite(b)) {
        ++out_.non_finite;
        sums.differ |= !same && !(a == b);
        continue;
      }
      const double by = b - a;
      sums.a += a * a;
      sums.b += b * b;
      sums.change += by * by;
      sums.differ |= by != 0;
      out_.differ += cast_ && by != 0 ? 1 : 0;
      if (std::fabs(by) > out_.largest) {
        out_.largest = std::fabs(by);
        out_.largest_at = IndexOf(box, i);
        out_.largest_a = a;
        out_.largest_b = b;
      }
      if (before == nullptr || !std::isfinite((*before)[i])) continue;
      const double was = a - (*before)[i];
      along_ += was * by;
      along_squares_ += by * by;
      before_squares_ += was * was;
    }
    return sums;
  }

  void CountBits(const Box& box, size_t width) {
    for (size_t i = 0; i < box.count; ++i)
      out_.differ += std::memcmp(box.a + i * width, box.b + i * width, width) != 0 ? 1 : 0;
  }

  TensorChange& out_;
  std::vector<double> a_, b_;
  std::vector<Row> rows_;
  bool cast_ = false;  // true if the dtypes differ: values are compared, not bits
  double along_ = 0, along_squares_ = 0, before_squares_ = 0;
};

// Returns the place of the box's elements in the preceding checkpoint.
StoredTensor BoxOf(const StoredTensor& whole, const Box& box) {
  StoredTensor part = whole;
  part.shape = box.shape;
  for (size_t i = 0; i < box.at.size(); ++i)
    part.begin += static_cast<uint64_t>(box.at[i] * whole.stride[i]) * DTypeSize(whole.dtype);
  return part;
}

}  // namespace

absl::Status MeasureChange(const ComparedTensor& a, const ComparedTensor& b,
                           const ComparedTensor* before, PieceReader* reader, TensorChange* out) {
  out->name = a.name;
  out->name_b = b.name;
  out->layer = a.layer;
  out->kind = a.kind;
  const StoredTensor& of_a = a.parts[0].place;
  const StoredTensor& of_b = b.parts[0].place;
  out->dtype_a = DTypeSize(of_a.dtype) == 0 ? of_a.dtype_name : DTypeName(of_a.dtype);
  out->dtype_b = DTypeSize(of_b.dtype) == 0 ? of_b.dtype_name : DTypeName(of_b.dtype);
  if (DTypeSize(of_a.dtype) == 0 || DTypeSize(of_b.dtype) == 0) {
    out->wrong = "has a type that this version cannot read";
    return absl::OkStatus();
  }
  const Layout layout = LayOver(a.parts, b.parts);
  out->wrong = layout.wrong;
  out->shape = layout.shape.empty() ? of_a.shape : layout.shape;
  if (!layout.wrong.empty()) return absl::OkStatus();
  // The preceding change is used if its tensor is one piece of the same shape.
  const bool third = before != nullptr && before->parts.size() == 1 && !layout.copies &&
                     before->parts[0].place.shape == layout.shape &&
                     IsFloating(before->parts[0].place.dtype);
  ChangeMeter meter(layout, out);
  TensorScan scan;
  std::vector<std::byte> bytes;
  std::vector<double> values;
  absl::Status failed;
  for (const Piece& piece : layout.pieces) {
    const DType dtype_a = piece.a.place.dtype, dtype_b = piece.b.place.dtype;
    absl::Status status = reader->Read(piece, [&](const Box& box) {
      if (third) {
        const StoredTensor part = BoxOf(before->parts[0].place, box);
        failed = scan.Read(*before->parts[0].file, part, &bytes);
        if (!failed.ok()) return false;
        Widen(bytes.data(), part.dtype, box.count, &values);
      }
      meter.Take(box, dtype_a, dtype_b, third ? &values : nullptr);
      return true;
    });
    if (!status.ok()) return status;
    if (!failed.ok()) return failed;
  }
  meter.Finish(third);
  return absl::OkStatus();
}

absl::Status ReadChangeMatrix(const ComparedTensor& a, const ComparedTensor& b, PieceReader* reader,
                              std::vector<float>* matrix) {
  matrix->clear();
  const Layout layout = LayOver(a.parts, b.parts);
  const StoredTensor& of_a = a.parts[0].place;
  if (!layout.wrong.empty() || layout.pieces.size() != 1 || layout.shape.size() != 2 ||
      of_a.elements() > kMostOfSpectrum || std::min(layout.shape[0], layout.shape[1]) < 2)
    return absl::OkStatus();
  matrix->reserve(static_cast<size_t>(of_a.elements()));
  std::vector<double> x, y;
  // The boxes of one piece with two axes come in the order of its elements.
  return reader->Read(layout.pieces[0], [&](const Box& box) {
    Widen(box.a, of_a.dtype, box.count, &x);
    Widen(box.b, b.parts[0].place.dtype, box.count, &y);
    for (size_t i = 0; i < box.count; ++i) {
      const double by = y[i] - x[i];
      matrix->push_back(std::isfinite(by) ? static_cast<float>(by) : 0);
    }
    return true;
  });
}

}  // namespace plumbline::audit
