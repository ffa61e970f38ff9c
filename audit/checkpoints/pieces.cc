#include "audit/checkpoints/pieces.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plumbline::audit {
namespace {

std::string ShapeWords(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

TensorPart Slice(TensorPart part, size_t axis, int64_t first, int64_t count) {
  part.place.begin += static_cast<uint64_t>(first) *
                      static_cast<uint64_t>(part.place.stride[axis]) * DTypeSize(part.place.dtype);
  part.place.shape[axis] = count;
  return part;
}

bool AllAlike(const std::vector<TensorPart>& parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const TensorPart& part) {
    return part.place.shape == parts[0].place.shape;
  });
}

// Returns the axis on which the parts add up to the shape of the whole.
std::optional<size_t> AxisOf(const std::vector<TensorPart>& parts,
                             const std::vector<int64_t>& whole) {
  for (size_t axis = 0; axis < whole.size(); ++axis) {
    int64_t sum = 0;
    bool fits = true;
    for (const TensorPart& part : parts) {
      const std::vector<int64_t>& shape = part.place.shape;
      fits &= shape.size() == whole.size();
      for (size_t i = 0; fits && i < whole.size(); ++i) fits = i == axis || shape[i] == whole[i];
      if (!fits) break;
      sum += shape[axis];
    }
    if (fits && sum == whole[axis]) return axis;
  }
  return std::nullopt;
}

// Pairs the whole tensor with its parts along one axis.
void LayParts(const TensorPart& whole, const std::vector<TensorPart>& parts, size_t axis,
              bool whole_is_a, Layout* out) {
  int64_t first = 0;
  for (const TensorPart& part : parts) {
    const int64_t count = part.place.shape[axis];
    Piece piece;
    piece.at.assign(whole.place.shape.size(), 0);
    piece.at[axis] = first;
    const TensorPart slice = Slice(whole, axis, first, count);
    piece.a = whole_is_a ? slice : part;
    piece.b = whole_is_a ? part : slice;
    out->pieces.push_back(std::move(piece));
    first += count;
  }
}

// Pairs the whole tensor with parts that consist of blocks. `blocks` has the number of rows of each
// block.
Layout LayBlocks(const TensorPart& whole, const std::vector<TensorPart>& parts,
                 const std::vector<int64_t>& blocks, bool whole_is_a) {
  Layout out;
  out.shape = whole.place.shape;
  const auto ranks = static_cast<int64_t>(parts.size());
  int64_t before = 0;  // rows of a part in the preceding blocks
  for (const int64_t rows : blocks) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      Piece piece;
      piece.at.assign(out.shape.size(), 0);
      piece.at[0] = ranks * before + rank * rows;
      const TensorPart whole_rows = Slice(whole, 0, piece.at[0], rows);
      const TensorPart part_rows = Slice(parts[static_cast<size_t>(rank)], 0, before, rows);
      piece.a = whole_is_a ? whole_rows : part_rows;
      piece.b = whole_is_a ? part_rows : whole_rows;
      out.pieces.push_back(std::move(piece));
    }
    before += rows;
  }
  out.how = absl::StrCat("each rank's rows are ", blocks.size(), " blocks (of ",
                         absl::StrJoin(blocks, ", "), ") that the other side stores consecutively");
  return out;
}

}  // namespace

std::vector<Layout> InterleavedLayouts(const std::vector<TensorPart>& a,
                                       const std::vector<TensorPart>& b) {
  constexpr int64_t kQueriesToAKey[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64};
  const bool whole_is_a = a.size() == 1;
  const TensorPart& whole = whole_is_a ? a[0] : b[0];
  const std::vector<TensorPart>& parts = whole_is_a ? b : a;
  if ((a.size() != 1 && b.size() != 1) || parts.size() < 2 || !AllAlike(parts) ||
      AxisOf(parts, whole.place.shape) != std::optional<size_t>(0))
    return {};
  const int64_t rows = parts[0].place.shape[0];
  std::vector<Layout> out;
  const auto add = [&](const std::vector<int64_t>& blocks) {
    out.push_back(LayBlocks(whole, parts, blocks, whole_is_a));
  };
  if (rows > 0 && rows % 2 == 0) add({rows / 2, rows / 2});
  for (const int64_t g : kQueriesToAKey) {
    const int64_t n = rows / (g + 2);
    if (n > 0 && rows % (g + 2) == 0) add({g * n, n, n});
  }
  return out;
}

Layout LayOver(const std::vector<TensorPart>& a, const std::vector<TensorPart>& b) {
  Layout out;
  const std::vector<int64_t>& shape_a = a[0].place.shape;
  const std::vector<int64_t>& shape_b = b[0].place.shape;
  const bool alike = AllAlike(a) && AllAlike(b) && shape_a == shape_b;
  if (alike && (a.size() == b.size() || a.size() == 1 || b.size() == 1)) {
    out.shape = shape_a;
    out.copies = std::max(a.size(), b.size()) > 1;
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      out.pieces.push_back({a[a.size() == 1 ? 0 : i], b[b.size() == 1 ? 0 : i],
                            std::vector<int64_t>(shape_a.size(), 0)});
    }
    return out;
  }
  if (a.size() == 1 && b.size() == 1) {
    out.wrong =
        absl::StrCat("shape ", ShapeWords(shape_a), " in A, ", ShapeWords(shape_b), " in B");
    return out;
  }
  if (a.size() == b.size()) {
    for (size_t i = 0; i < a.size() && out.wrong.empty(); ++i) {
      if (a[i].place.shape != b[i].place.shape) {
        out.wrong = absl::StrCat("shape ", ShapeWords(a[i].place.shape), " in A, ",
                                 ShapeWords(b[i].place.shape), " in B, on rank ", a[i].rank);
      }
      out.pieces.push_back({a[i], b[i], std::vector<int64_t>(a[i].place.shape.size(), 0)});
    }
    out.shape = shape_a;
    out.copies = true;
    return out;
  }
  if (a.size() == 1 || b.size() == 1) {
    const bool whole_is_a = a.size() == 1;
    const TensorPart& whole = whole_is_a ? a[0] : b[0];
    const std::vector<TensorPart>& parts = whole_is_a ? b : a;
    out.shape = whole.place.shape;
    const std::optional<size_t> axis = AxisOf(parts, out.shape);
    if (axis) {
      LayParts(whole, parts, *axis, whole_is_a, &out);
    } else {
      out.wrong = absl::StrCat(whole_is_a ? "A" : "B", " has shape ", ShapeWords(out.shape),
                               ", the other's ", parts.size(), " parts (the first ",
                               ShapeWords(parts[0].place.shape), ") do not add up to this shape");
    }
    return out;
  }
  out.wrong = absl::StrCat(a.size(), " parts in A, ", b.size(), " in B: merge one of them");
  return out;
}

absl::Status PieceReader::Read(const Piece& piece, const std::function<bool(const Box&)>& take) {
  if (piece.a.place.elements() == 0) return absl::OkStatus();
  bool stop = false;
  return ReadFrom(piece, 0, take, &stop);
}

// Splits a piece along `axis`. If one index is still too large, splits the next axis.
absl::Status PieceReader::ReadFrom(const Piece& piece, size_t axis,
                                   const std::function<bool(const Box&)>& take, bool* stop) {
  const std::vector<int64_t>& shape = piece.a.place.shape;
  const int64_t count = piece.a.place.elements();
  if (count <= kMostOfBox || axis == shape.size()) {
    if (absl::Status s = scan_a_.Read(*piece.a.file, piece.a.place, &a_); !s.ok()) return s;
    if (absl::Status s = scan_b_.Read(*piece.b.file, piece.b.place, &b_); !s.ok()) return s;
    *stop = !take({a_.data(), b_.data(), static_cast<size_t>(count), piece.at, shape});
    return absl::OkStatus();
  }
  const int64_t inner = count / shape[axis];
  const int64_t group = std::max<int64_t>(kMostOfBox / inner, 1);
  for (int64_t first = 0; first < shape[axis] && !*stop; first += group) {
    const int64_t extent = std::min(group, shape[axis] - first);
    Piece part{Slice(piece.a, axis, first, extent), Slice(piece.b, axis, first, extent), piece.at};
    part.at[axis] += first;
    if (absl::Status s = ReadFrom(part, axis + 1, take, stop); !s.ok()) return s;
  }
  return absl::OkStatus();
}

std::vector<int64_t> IndexOf(const Box& box, size_t n) {
  std::vector<int64_t> index = box.at;
  for (size_t axis = box.shape.size(); axis-- > 0;) {
    index[axis] += static_cast<int64_t>(n) % box.shape[axis];
    n /= static_cast<size_t>(box.shape[axis]);
  }
  return index;
}

}  // namespace plumbline::audit
