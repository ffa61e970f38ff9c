#include "audit/certify/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "audit/checkpoints/equality.h"
#include "audit/checkpoints/pieces.h"

namespace plumbline::audit {
namespace {

using TensorsByName = std::map<std::string, const ComparedTensor*>;

TensorsByName ByName(const CheckpointSide& side) {
  TensorsByName names;
  for (const ComparedTensor& tensor : side.tensors) names.emplace(tensor.name, &tensor);
  return names;
}

// Compares the elements of one box.
void CompareBox(const Box& box, DType dtype, BitPlace* place, Tally* tally) {
  const size_t width = DTypeSize(dtype);
  uint64_t equal = 0;
  for (size_t i = 0; i < box.count; ++i) {
    if (std::memcmp(box.a + i * width, box.b + i * width, width) == 0) {
      ++equal;
      continue;
    }
    if (tally->first().is_null()) place->index = absl::StrJoin(IndexOf(box, i), ", ");
    tally->Take("weights", *place, BitValueAt(box.a, dtype, i), BitValueAt(box.b, dtype, i));
  }
  tally->Equal("weights", equal);
}

// Compares the elements of two tensors that are known to differ. Returns false if they have no
// layout or dtype in common.
absl::StatusOr<bool> CompareElements(const ComparedTensor& a, const ComparedTensor& b,
                                     PieceReader* reader, Tally* tally) {
  const DType dtype = a.parts[0].place.dtype;
  if (dtype != b.parts[0].place.dtype || dtype == DType::kUnspecified) return false;
  const Layout layout = LayOver(a.parts, b.parts);
  if (!layout.wrong.empty()) return false;
  BitPlace place;
  place.tensor = a.name;
  for (const Piece& piece : layout.pieces) {
    if (piece.a.rank != 0 || piece.b.rank != 0) place.rank = std::max(piece.a.rank, piece.b.rank);
    const absl::Status status = reader->Read(piece, [&](const Box& box) {
      CompareBox(box, dtype, &place, tally);
      return true;
    });
    if (!status.ok()) return status;
  }
  return true;
}

uint64_t ElementsOf(const ComparedTensor& tensor) {
  uint64_t elements = 0;
  for (const TensorPart& part : tensor.parts)
    elements += static_cast<uint64_t>(part.place.elements());
  return elements;
}

}  // namespace

absl::Status CompareWeights(const CheckpointSide& a, const CheckpointSide& b, Tally* tally) {
  const absl::StatusOr<Equality> equality = ExpectEqual(a, b, NamesMap{}, [](size_t) {});
  if (!equality.ok()) return equality.status();
  if (equality->tensors == 0 && equality->unequal.empty())
    return absl::InvalidArgumentError(
        "expected two checkpoints with tensors in common, found none");
  const TensorsByName of_a = ByName(a), of_b = ByName(b);
  std::set<std::string> unequal;
  PieceReader reader;
  for (const Unequal& one : equality->unequal) {
    unequal.insert(one.name);
    const auto left = of_a.find(one.name), right = of_b.find(one.name);
    BitPlace place;
    place.tensor = one.name;
    const bool both = left != of_a.end() && right != of_b.end();
    if (!both) {
      tally->Other("values", place, one.text, "");
      continue;
    }
    const auto compared = CompareElements(*left->second, *right->second, &reader, tally);
    if (!compared.ok()) return compared.status();
    if (!*compared) tally->Other("tensors", place, one.text, "");
  }
  for (const auto& [name, tensor] : of_a) {
    if (of_b.contains(name) && !unequal.contains(name) &&
        tensor->parts[0].place.dtype != DType::kUnspecified)
      tally->Equal("weights", ElementsOf(*tensor));
  }
  tally->Equal("tensors", equality->tensors);
  tally->Equal("values", equality->values);
  for (const std::string& reason : equality->unread) tally->Gap("tensors", reason, 1, true);
  for (const std::string& reason : equality->aside) tally->Gap("tensors", reason, 1, false);
  return absl::OkStatus();
}

}  // namespace plumbline::audit
