#include "audit/checkpoints/bit_difference.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "audit/render/text_util.h"
#include "base/load.h"

namespace plumbline::audit {
namespace {

// Counts the differing elements of two tensors of one dtype, and keeps the first.
class BitComparison {
 public:
  explicit BitComparison(DType dtype) : dtype_(dtype) {}

  void Take(const Piece& piece, const Box& box) {
    const size_t width = DTypeSize(dtype_);
    count += box.count;
    if (std::memcmp(box.a, box.b, box.count * width) == 0) return;
    for (size_t i = 0; i < box.count; ++i) {
      if (std::memcmp(box.a + i * width, box.b + i * width, width) == 0) continue;
      if (differ++ == 0) First(piece, box, i);
    }
  }

  uint64_t count = 0, differ = 0;
  std::string first;

 private:
  void First(const Piece& piece, const Box& box, size_t n) {
    const auto i = static_cast<int64_t>(n);
    const std::vector<int64_t> index = IndexOf(box, n);
    first = absl::StrFormat("element [%s] is %s in A, %s in B", absl::StrJoin(index, ", "),
                            ElementText(box.a, dtype_, i), ElementText(box.b, dtype_, i));
    const uint32_t rank_a = piece.a.rank, rank_b = piece.b.rank;
    if (rank_a != 0 || rank_b != 0)
      absl::StrAppend(&first, rank_a == rank_b
                                  ? absl::StrCat(" on rank ", rank_a)
                                  : absl::StrCat(" (ranks ", rank_a, ", ", rank_b, ")"));
  }

  DType dtype_;
};

// Reads the whole layout. If `first_only`, stops at the first box that differs.
absl::Status Compare(const Layout& layout, bool first_only, PieceReader* reader,
                     BitComparison* bits) {
  for (const Piece& piece : layout.pieces) {
    absl::Status status = reader->Read(piece, [&](const Box& box) {
      bits->Take(piece, box);
      return !first_only || bits->differ == 0;
    });
    if (!status.ok()) return status;
    if (first_only && bits->differ > 0) break;
  }
  return absl::OkStatus();
}

uint64_t BitsOf(const std::byte* data, DType dtype, int64_t i) {
  uint64_t bits = 0;
  const size_t width = DTypeSize(dtype);
  for (size_t k = width; k-- > 0;)
    bits = bits << 8 | std::to_integer<uint64_t>(data[static_cast<size_t>(i) * width + k]);
  return bits;
}

}  // namespace

std::string ElementText(const std::byte* data, DType dtype, int64_t i) {
  if (dtype == DType::kI64) return absl::StrCat(LoadRaw<int64_t>(data, i));
  if (dtype == DType::kU64) return absl::StrCat(LoadRaw<uint64_t>(data, i));
  const double value = LoadDouble(data, dtype, i);
  const uint64_t bits = BitsOf(data, dtype, i);
  // If a boolean's byte is neither 0 nor 1, its byte is shown.
  if (dtype == DType::kBool && bits > 1) return absl::StrFormat("1 (byte 0x%02x)", bits);
  if (std::isnan(value)) return absl::StrFormat("nan (bits 0x%x)", bits);
  if (value == 0 && std::signbit(value)) return "-0";
  return ExactNumber(value);
}

absl::StatusOr<BitDifference> FindBitDifference(const ComparedTensor& a, const ComparedTensor& b,
                                                PieceReader* reader) {
  BitDifference out;
  const StoredTensor& of_a = a.parts[0].place;
  const StoredTensor& of_b = b.parts[0].place;
  if (of_a.dtype != of_b.dtype) {
    out.text = absl::StrCat(DTypeName(of_a.dtype), " in A, ", DTypeName(of_b.dtype), " in B");
    return out;
  }
  const Layout layout = LayOver(a.parts, b.parts);
  out.text = layout.wrong;
  if (!out.text.empty()) return out;
  // Join the parts rank after rank.
  BitComparison bits(of_a.dtype);
  if (absl::Status s = Compare(layout, false, reader, &bits); !s.ok()) return s;
  if (bits.differ == 0) return out;
  // Fused weights are split block by block: try these layouts too.
  for (const Layout& by_blocks : InterleavedLayouts(a.parts, b.parts)) {
    BitComparison other(of_a.dtype);
    if (absl::Status s = Compare(by_blocks, true, reader, &other); !s.ok()) return s;
    if (other.differ > 0) continue;
    out.how = by_blocks.how;
    return out;
  }
  out.text = absl::StrCat(bits.first, " (", bits.differ, " of ", bits.count, " differ)");
  return out;
}

}  // namespace plumbline::audit
