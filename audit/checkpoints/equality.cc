#include "audit/checkpoints/equality.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "audit/checkpoints/bit_difference.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

constexpr char kAlone[] = "in A alone";

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

void CompareNumber(const char* name, const std::optional<double>& a, const std::optional<double>& b,
                   Equality* out) {
  if (!a || !b || *a == *b || (std::isnan(*a) && std::isnan(*b))) return;
  out->unequal.push_back(
      {name, absl::StrCat(ExactNumber(*a), " in A, ", ExactNumber(*b), " in B")});
}

// Of numbers that one side alone tells: how many, and the first.
void SetAside(const char* side, size_t count, const std::string& first, Equality* out) {
  if (count == 0) return;
  out->aside.push_back(absl::StrCat(side, " alone tells ", Plural(count, "number"), " (", first,
                                    count > 1 ? ", ...)" : ")"));
}

// Numbers beside the tensors, where both sides are files that hold some.
void ComparePlainNumbers(const CheckpointSide& a, const CheckpointSide& b,
                         const std::set<std::string>& told, Equality* out) {
  if (a.numbers.empty() || b.numbers.empty()) return;
  std::map<std::string, const NamedNumber*> of_b;
  for (const NamedNumber& number : b.numbers) of_b.emplace(number.name, &number);
  std::set<std::string> met;
  size_t only_a = 0;
  std::string first_a, first_b;
  for (const NamedNumber& number : a.numbers) {
    if (!met.insert(number.name).second) continue;
    const auto at = of_b.find(number.name);
    if (at == of_b.end()) {
      if (only_a++ == 0) first_a = number.name;
    } else if (!number.Is(*at->second) &&
               !told.contains(number.name.substr(number.name.rfind('.') + 1))) {
      out->unequal.push_back(
          {number.name, absl::StrCat(number.text(), " in A, ", at->second->text(), " in B")});
    }
  }
  size_t only_b = 0;
  for (const auto& [name, number] : of_b) {
    if (!met.contains(name) && only_b++ == 0) first_b = name;
  }
  SetAside("A", only_a, first_a, out);
  SetAside("B", only_b, first_b, out);
}

void CompareNumbers(const CheckpointSide& a, const CheckpointSide& b, Equality* out) {
  if (a.stepped && b.stepped && a.step != b.step)
    out->unequal.push_back({"step", absl::StrCat(a.step, " in A, ", b.step, " in B")});
  // What was told once is not told again by the places that it was read from.
  std::set<std::string> told;
  const auto compare = [&](const std::string& name, const std::optional<double>& of_a,
                           const std::optional<double>& of_b, const char* key) {
    const size_t before = out->unequal.size();
    CompareNumber(name.c_str(), of_a, of_b, out);
    if (out->unequal.size() > before) told.insert(key);
  };
  compare("optimizer.step", a.optimizer_step, b.optimizer_step, "step");
  compare("scheduler.step", a.scheduler_step, b.scheduler_step, "last_epoch");
  for (size_t i = 0; i < a.rates.size() && i < b.rates.size(); ++i)
    compare(absl::StrCat("lr of group ", i), a.rates[i], b.rates[i], "lr");
  ComparePlainNumbers(a, b, told, out);
}

// A tensor of a type that is not read on either side: what can be told without its elements.
void CompareUnread(const ComparedTensor& a, const ComparedTensor& b, Equality* out) {
  const StoredTensor& of_a = a.parts[0].place;
  const StoredTensor& of_b = b.parts[0].place;
  const auto type = [](const StoredTensor& place) {
    return place.dtype == DType::kUnspecified ? place.dtype_name
                                              : std::string(DTypeName(place.dtype));
  };
  if (type(of_a) != type(of_b)) {
    out->unequal.push_back({a.name, absl::StrCat(type(of_a), " in A, ", type(of_b), " in B")});
  } else if (a.parts.size() == b.parts.size() && of_a.shape != of_b.shape) {
    out->unequal.push_back(
        {a.name, absl::StrCat("shape [", absl::StrJoin(of_a.shape, ", "), "] in A, [",
                              absl::StrJoin(of_b.shape, ", "), "] in B")});
  } else {
    out->unread.push_back(
        absl::StrCat(a.name, " is of a type that is not read (", type(of_a), ")"));
  }
}

bool IsRead(const ComparedTensor& tensor) { return DTypeSize(tensor.parts[0].place.dtype) > 0; }

uint64_t BytesOf(const ComparedTensor& tensor) {
  uint64_t bytes = 0;
  for (const TensorPart& part : tensor.parts) bytes += part.place.bytes();
  return bytes;
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
  // Tensors of A beside B's of the same name, bit by bit.
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
      const std::string name_b = names.OfB(tensor.name, tensor.layer.size());
      out.unequal.push_back({tensor.name, name_b == tensor.name ? std::string(kAlone)
                                                                : absl::StrCat(kAlone, " (", name_b,
                                                                               " by the map)")});
      continue;
    }
    met.insert(at->second);
    if (!IsRead(tensor) || !IsRead(*at->second)) {
      CompareUnread(tensor, *at->second, &out);
      continue;
    }
    absl::StatusOr<BitDifference> difference = FindBitDifference(tensor, *at->second, &reader);
    if (!difference.ok()) return difference.status();
    if (!difference->text.empty()) {
      out.unequal.push_back({tensor.name, std::move(difference->text)});
      continue;
    }
    ++out.tensors;
    out.bytes += BytesOf(tensor);
    if (!difference->how.empty()) out.notes.push_back(tensor.name + ": " + difference->how);
  }
  for (const ComparedTensor& tensor : b.tensors) {
    if (!a.Has(tensor.kind) || met.contains(&tensor)) continue;
    only_b.push_back(&tensor);
    out.unequal.push_back({tensor.name, "in B alone"});
  }
  // Steps, rates and plain numbers; the lines of the map that fit nothing.
  CompareNumbers(a, b, &out);
  for (const std::string& pattern : names.Unfitted(a.Layers()))
    out.notes.push_back(absl::StrCat("of the map, \"", pattern, "\" fits no name of A"));
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> renamed =
      FindRenamed(only_a, only_b);
  if (!renamed.ok()) return renamed.status();
  // A hint beside what seems to be missing: its bits have another name.
  for (const auto& [name_a, name_b] : *renamed) {
    for (Unequal& one : out.unequal) {
      if (one.name == name_a && one.text.starts_with(kAlone))
        absl::StrAppend(&one.text, "; B has its bits as ", name_b, " (say so by --map)");
    }
  }
  return out;
}

}  // namespace plumbline::audit
