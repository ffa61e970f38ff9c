#include "audit/checkpoints/equality.h"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "audit/checkpoints/pieces.h"
#include "audit/render/text_util.h"
#include "base/load.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostListed = 20;

const char* WordsOf(TensorKind kind) {
  switch (kind) {
    case TensorKind::kModel:
      return "weights";
    case TensorKind::kAverage:
      return "averages of weights";
    case TensorKind::kOptimizer:
      return "an optimizer's state";
    case TensorKind::kOther:
      break;
  }
  return "other tensors";
}

// Of two tensors of one dtype: what differs first, and how much.
class BitComparison {
 public:
  BitComparison(DType dtype, const Piece* const* piece) : dtype_(dtype), piece_(piece) {}

  void Take(const Box& box) {
    const size_t width = DTypeSize(dtype_);
    count += box.count;
    if (std::memcmp(box.a, box.b, box.count * width) == 0) return;
    for (size_t i = 0; i < box.count; ++i) {
      if (std::memcmp(box.a + i * width, box.b + i * width, width) == 0) continue;
      if (differ++ == 0) First(box, i);
    }
  }

  uint64_t count = 0, differ = 0;
  std::string first;

 private:
  void First(const Box& box, size_t n) {
    const auto i = static_cast<int64_t>(n);
    std::vector<int64_t> index = box.at;
    size_t rest = n;
    for (size_t axis = box.shape.size(); axis-- > 0;) {
      index[axis] += static_cast<int64_t>(rest) % box.shape[axis];
      rest /= static_cast<size_t>(box.shape[axis]);
    }
    first = absl::StrFormat("element [%s] is %s in A, %s in B", absl::StrJoin(index, ", "),
                            ExactNumber(LoadDouble(box.a, dtype_, i)),
                            ExactNumber(LoadDouble(box.b, dtype_, i)));
    const uint32_t rank_a = (*piece_)->a.rank, rank_b = (*piece_)->b.rank;
    if (rank_a != 0 || rank_b != 0)
      absl::StrAppend(&first, rank_a == rank_b
                                  ? absl::StrCat(" on rank ", rank_a)
                                  : absl::StrCat(" (ranks ", rank_a, ", ", rank_b, ")"));
  }

  DType dtype_;
  const Piece* const* piece_;
};

// Empty: equal.
absl::StatusOr<std::string> Difference(const ComparedTensor& a, const ComparedTensor& b,
                                       PieceReader* reader) {
  const StoredTensor& of_a = a.parts[0].place;
  const StoredTensor& of_b = b.parts[0].place;
  if (of_a.dtype != of_b.dtype)
    return absl::StrCat(DTypeName(of_a.dtype), " in A, ", DTypeName(of_b.dtype), " in B");
  const Layout layout = LayOver(a.parts, b.parts);
  if (!layout.wrong.empty()) return layout.wrong;
  const Piece* now = nullptr;
  BitComparison bits(of_a.dtype, &now);
  for (const Piece& piece : layout.pieces) {
    now = &piece;
    absl::Status status = reader->Read(piece, [&](const Box& box) {
      bits.Take(box);
      return true;
    });
    if (!status.ok()) return status;
  }
  if (bits.differ == 0) return std::string();
  return absl::StrCat(bits.first, " (", bits.differ, " of ", bits.count, " differ)");
}

void CompareNumber(const char* name, const std::optional<double>& a, const std::optional<double>& b,
                   Equality* out) {
  if (!a || !b || *a == *b) return;
  out->unequal.push_back(
      {name, absl::StrCat(ExactNumber(*a), " in A, ", ExactNumber(*b), " in B")});
}

void CompareNumbers(const CheckpointSide& a, const CheckpointSide& b, Equality* out) {
  CompareNumber("optimizer.step", a.optimizer_step, b.optimizer_step, out);
  CompareNumber("scheduler.step", a.scheduler_step, b.scheduler_step, out);
  for (size_t i = 0; i < a.rates.size() && i < b.rates.size(); ++i)
    CompareNumber(absl::StrCat("lr of group ", i).c_str(), a.rates[i], b.rates[i], out);
}

bool IsRead(const ComparedTensor& tensor) { return DTypeSize(tensor.parts[0].place.dtype) > 0; }

uint64_t BytesOf(const ComparedTensor& tensor) {
  uint64_t bytes = 0;
  for (const TensorPart& part : tensor.parts) bytes += part.place.bytes();
  return bytes;
}

nlohmann::ordered_json SideJson(const CheckpointSide& side) {
  return {{"path", ValidUtf8(side.path)}, {"run", ValidUtf8(side.run)}, {"step", side.step}};
}

}  // namespace

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> FindRenamed(
    const std::vector<const ComparedTensor*>& only_a,
    const std::vector<const ComparedTensor*>& only_b) {
  using Content = std::tuple<DType, std::vector<int64_t>, uint64_t, uint64_t>;
  std::set<std::pair<DType, std::vector<int64_t>>> shapes;
  for (const ComparedTensor* tensor : only_a)
    shapes.emplace(tensor->parts[0].place.dtype, tensor->parts[0].place.shape);
  std::map<Content, std::string> names_of_b;
  TensorScan scan;
  const auto content = [&](const ComparedTensor& tensor) -> absl::StatusOr<Content> {
    const TensorPart& part = tensor.parts[0];
    TensorStats stats;
    if (absl::Status s = scan.Measure(*part.file, part.place, &stats); !s.ok()) return s;
    // What is constant says nothing of whose it is.
    if (!(stats.min < stats.max)) return Content(part.place.dtype, {-1}, 0, 0);
    return Content(part.place.dtype, part.place.shape, stats.digest_low, stats.digest_high);
  };
  for (const ComparedTensor* tensor : only_b) {
    const StoredTensor& place = tensor->parts[0].place;
    if (tensor->parts.size() > 1 || !IsRead(*tensor) ||
        !shapes.contains({place.dtype, place.shape}))
      continue;
    absl::StatusOr<Content> of = content(*tensor);
    if (!of.ok()) return of.status();
    names_of_b.emplace(*std::move(of), tensor->name);
  }
  std::vector<std::pair<std::string, std::string>> renamed;
  for (const ComparedTensor* tensor : only_a) {
    if (names_of_b.empty()) break;
    if (tensor->parts.size() > 1 || !IsRead(*tensor)) continue;
    absl::StatusOr<Content> of = content(*tensor);
    if (!of.ok()) return of.status();
    if (std::get<1>(*of) == std::vector<int64_t>{-1}) continue;
    const auto at = names_of_b.find(*of);
    if (at != names_of_b.end()) renamed.emplace_back(tensor->name, at->second);
  }
  return renamed;
}

absl::StatusOr<Equality> ExpectEqual(const CheckpointSide& a, const CheckpointSide& b,
                                     const NamesMap& names,
                                     const std::function<void(size_t)>& on_tensor) {
  Equality out;
  std::map<std::string, const ComparedTensor*> of_b;
  for (const ComparedTensor& tensor : b.tensors) of_b[tensor.name] = &tensor;
  for (const TensorKind kind :
       {TensorKind::kModel, TensorKind::kAverage, TensorKind::kOptimizer, TensorKind::kOther}) {
    if (a.Has(kind) != b.Has(kind))
      out.aside.push_back(absl::StrCat(a.Has(kind) ? "A" : "B", " alone has ", WordsOf(kind)));
  }
  PieceReader reader;
  std::set<const ComparedTensor*> met;
  std::vector<const ComparedTensor*> only_a, only_b;
  size_t done = 0;
  for (const ComparedTensor& tensor : a.tensors) {
    on_tensor(done++);
    if (!b.Has(tensor.kind)) continue;
    const auto at = of_b.find(names.OfB(tensor.name, tensor.layer.size()));
    if (at == of_b.end()) {
      only_a.push_back(&tensor);
      out.unequal.push_back({tensor.name, "in A alone"});
      continue;
    }
    met.insert(at->second);
    if (!IsRead(tensor) || !IsRead(*at->second)) {
      out.aside.push_back(tensor.name + " is of a type that is not read");
      continue;
    }
    absl::StatusOr<std::string> difference = Difference(tensor, *at->second, &reader);
    if (!difference.ok()) return difference.status();
    if (difference->empty()) {
      ++out.tensors;
      out.bytes += BytesOf(tensor);
    } else {
      out.unequal.push_back({tensor.name, *std::move(difference)});
    }
  }
  for (const ComparedTensor& tensor : b.tensors) {
    if (!a.Has(tensor.kind) || met.contains(&tensor)) continue;
    only_b.push_back(&tensor);
    out.unequal.push_back({tensor.name, "in B alone"});
  }
  CompareNumbers(a, b, &out);
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> renamed =
      FindRenamed(only_a, only_b);
  if (!renamed.ok()) return renamed.status();
  for (const auto& [name_a, name_b] : *renamed) {
    for (Unequal& one : out.unequal) {
      if (one.name == name_a && one.text == "in A alone")
        absl::StrAppend(&one.text, "; B has its bits as ", name_b, " (say so by --map)");
    }
  }
  return out;
}

std::string EqualityText(const CheckpointSide& a, const CheckpointSide& b, const Equality& result) {
  std::string out;
  for (const std::string& aside : result.aside)
    absl::StrAppend(&out, "not compared: ", Printable(aside), "\n");
  if (result.equal()) {
    absl::StrAppend(&out, "equal: ", Plural(result.tensors, "tensor"), ", ", result.bytes,
                    " bytes (step ", a.step, " of ", Printable(a.run), ", step ", b.step, " of ",
                    Printable(b.run), ")\n");
    return out;
  }
  for (size_t i = 0; i < result.unequal.size() && i < kMostListed; ++i) {
    const Unequal& one = result.unequal[i];
    absl::StrAppend(&out, i == 0 ? "first difference: " : "                  ", Printable(one.name),
                    ": ", Printable(one.text), "\n");
  }
  if (result.unequal.size() > kMostListed)
    absl::StrAppend(&out, "and ", result.unequal.size() - kMostListed, " more\n");
  absl::StrAppend(&out, result.unequal.size(), " differ, ", result.tensors, " equal\n");
  return out;
}

std::string EqualityJson(const CheckpointSide& a, const CheckpointSide& b, const Equality& result) {
  nlohmann::ordered_json unequal = nlohmann::ordered_json::array(), aside = unequal;
  for (const Unequal& one : result.unequal)
    unequal.push_back({{"name", ValidUtf8(one.name)}, {"text", ValidUtf8(one.text)}});
  for (const std::string& text : result.aside) aside.push_back(ValidUtf8(text));
  const nlohmann::ordered_json json = {{"schema", "plumbline.equality/1"},
                                       {"a", SideJson(a)},
                                       {"b", SideJson(b)},
                                       {"equal", result.equal()},
                                       {"tensors", result.tensors},
                                       {"bytes", result.bytes},
                                       {"unequal", unequal},
                                       {"aside", aside}};
  return json.dump(2) + "\n";
}

}  // namespace plumbline::audit
