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
#include "audit/checkpoints/values.h"
#include "audit/readers/checkpoint/distributed.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

constexpr char kAlone[] = "only in A";

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

// Compares learning rates and the step counters of optimizer and scheduler, which all file formats
// have. Returns the last parts of the names compared here, so that they are not compared again as
// plain values.
std::set<std::string> CompareNumbers(const CheckpointSide& a, const CheckpointSide& b,
                                     const NamesMap& names, LeftOut* left_out, Equality* out) {
  std::set<std::string> reported;
  const auto compare = [&](const std::string& name, const std::optional<double>& of_a,
                           const std::optional<double>& of_b, const char* key) {
    const size_t before = out->unequal.size();
    if (!left_out->Take(names, name)) CompareNumber(name.c_str(), of_a, of_b, out);
    if (out->unequal.size() > before) reported.insert(key);
  };
  compare("optimizer.step", a.optimizer_step, b.optimizer_step, "step");
  compare("scheduler.step", a.scheduler_step, b.scheduler_step, "last_epoch");
  for (size_t i = 0; i < a.rates.size() && i < b.rates.size(); ++i)
    compare(absl::StrCat("lr of group ", i), a.rates[i], b.rates[i], "lr");
  return reported;
}

// Compares the steps that the content states (safetensors metadata, conversions), if no value
// stated them. Steps in file names do not count: they describe the location, not the content.
void CompareSteps(const CheckpointSide& a, const CheckpointSide& b, const NamesMap& names,
                  LeftOut* left_out, Equality* out) {
  if (!a.reported_step || !b.reported_step || *a.reported_step == *b.reported_step) return;
  if (left_out->Take(names, "step")) return;
  out->unequal.push_back(
      {"step", absl::StrCat(*a.reported_step, " in A, ", *b.reported_step, " in B")});
}

// Returns true if the side keeps tensors of this kind. An optimizer with rates but no state has
// lost its state.
bool Keeps(const CheckpointSide& side, TensorKind kind, bool conversion) {
  return side.Has(kind) || (kind == TensorKind::kOptimizer && !conversion && !side.rates.empty());
}

enum class Form { kTorch, kDistributed, kOther };

std::set<Form> FormsOf(const CheckpointSide& side) {
  std::set<Form> forms;
  for (const WholeCheckpoint& rank : side.ranks) {
    for (const WholeCheckpoint::Part& part : rank.files) {
      const absl::StatusOr<std::string> head = part.file->Head(4);
      const bool zip = head.ok() && *head == "PK\x03\x04";
      forms.insert(IsDistributedPart(part.path) ? Form::kDistributed
                   : zip                        ? Form::kTorch
                                                : Form::kOther);
    }
  }
  return forms;
}

// Returns true if the map renames, or if the number of ranks or the library that wrote the files
// differs.
bool IsConversion(const CheckpointSide& a, const CheckpointSide& b, const NamesMap& names) {
  return names.Renames() || a.ranks.size() != b.ranks.size() || FormsOf(a) != FormsOf(b);
}

// Compares two tensors if the type of one is unsupported: by type, shape and other properties that
// are known without their elements.
void CompareUnread(const ComparedTensor& a, const ComparedTensor& b, Equality* out) {
  const StoredTensor& of_a = a.parts[0].place;
  const StoredTensor& of_b = b.parts[0].place;
  // If a view is negated, it may hold the values of a plain tensor of its type.
  const auto type = [](const StoredTensor& place) {
    const DType known = place.negated != DType::kUnspecified ? place.negated : place.dtype;
    return known == DType::kUnspecified ? place.dtype_name : std::string(DTypeName(known));
  };
  const bool negated = of_a.negated != DType::kUnspecified || of_b.negated != DType::kUnspecified;
  if (type(of_a) != type(of_b)) {
    out->unequal.push_back({a.name, absl::StrCat(type(of_a), " in A, ", type(of_b), " in B")});
  } else if (a.parts.size() == b.parts.size() && of_a.shape != of_b.shape) {
    out->unequal.push_back(
        {a.name, absl::StrCat("shape [", absl::StrJoin(of_a.shape, ", "), "] in A, [",
                              absl::StrJoin(of_b.shape, ", "), "] in B")});
  } else {
    out->unread.push_back(absl::StrCat(a.name,
                                       negated
                                           ? " is a negated view, whose bits are not its values ("
                                           : " has a type that this version cannot read (",
                                       type(of_a), ")"));
  }
}

// Reports the names that the map leaves out, and its patterns that match nothing.
void ReportTheMap(const NamesMap& names, const CheckpointSide& a, const LeftOut& left_out,
                  Equality* out) {
  for (const std::string& pattern : names.LeavingOut()) {
    const auto at = left_out.by.find(pattern);
    if (at == left_out.by.end()) {
      out->notes.push_back(absl::StrCat("of the map, \"", pattern, "\" fits no name"));
      continue;
    }
    const size_t count = at->second.all.size();
    out->aside.push_back(absl::StrCat("by the map, \"", pattern, "\" leaves out ",
                                      Plural(count, "name"), " (", at->second.first,
                                      count > 1 ? ", ...)" : ")"));
  }
  for (const std::string& pattern : names.Unfitted(a.Layers()))
    out->notes.push_back(absl::StrCat("of the map, \"", pattern, "\" fits no name of A"));
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
    // A constant tensor does not identify its origin.
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

absl::StatusOr<bool> CompareTensorPair(const ComparedTensor& a, const ComparedTensor& b,
                                       PieceReader* reader, Equality* out) {
  if (!IsRead(a) || !IsRead(b)) {
    CompareUnread(a, b, out);
    return false;
  }
  absl::StatusOr<BitDifference> difference = FindBitDifference(a, b, reader);
  if (!difference.ok()) return difference.status();
  if (!difference->text.empty()) {
    out->unequal.push_back({a.name, std::move(difference->text)});
    return false;
  }
  if (!difference->how.empty()) out->notes.push_back(a.name + ": " + difference->how);
  return true;
}

absl::StatusOr<Equality> ExpectEqual(const CheckpointSide& a, const CheckpointSide& b,
                                     const NamesMap& names,
                                     const std::function<void(size_t)>& on_tensor) {
  Equality out;
  out.conversion = IsConversion(a, b, names);
  const auto keeps = [&](const CheckpointSide& side, TensorKind kind) {
    return Keeps(side, kind, out.conversion);
  };
  std::map<std::string, const ComparedTensor*> of_b;
  for (const ComparedTensor& tensor : b.tensors) of_b[tensor.name] = &tensor;
  for (const TensorKind kind :
       {TensorKind::kModel, TensorKind::kAverage, TensorKind::kOptimizer, TensorKind::kOther}) {
    if (keeps(a, kind) == keeps(b, kind)) continue;
    out.kinds_aside = true;
    out.aside.push_back(
        absl::StrCat("only ", keeps(a, kind) ? "A" : "B", " contains ", WordsOf(kind)));
  }
  // Compare tensors of A with B's of the same name, bit by bit.
  PieceReader reader;
  LeftOut left_out;
  std::set<const ComparedTensor*> met;
  std::vector<const ComparedTensor*> only_a, only_b;
  size_t done = 0;
  for (const ComparedTensor& tensor : a.tensors) {
    on_tensor(done++);
    if (!keeps(b, tensor.kind) || left_out.Take(names, tensor.layer)) continue;
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
    const absl::StatusOr<bool> equal = CompareTensorPair(tensor, *at->second, &reader, &out);
    if (!equal.ok()) return equal.status();
    if (!*equal) continue;
    ++out.tensors;
    out.bytes += BytesOf(tensor);
  }
  for (const ComparedTensor& tensor : b.tensors) {
    if (!keeps(a, tensor.kind) || met.contains(&tensor) || left_out.Take(names, tensor.layer))
      continue;
    only_b.push_back(&tensor);
    out.unequal.push_back({tensor.name, "only in B"});
  }
  // Compare values that are not tensors.
  const std::set<std::string> reported = CompareNumbers(a, b, names, &left_out, &out);
  const size_t before = out.unequal.size();
  if (absl::Status s = CompareValues(a, b, names, reported, &reader, &left_out, &out); !s.ok())
    return s;
  if (out.unequal.size() == before) CompareSteps(a, b, names, &left_out, &out);
  ReportTheMap(names, a, left_out, &out);
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> renamed =
      FindRenamed(only_a, only_b);
  if (!renamed.ok()) return renamed.status();
  // If a missing tensor's bits exist under another name, add that as a hint.
  for (const auto& [name_a, name_b] : *renamed) {
    for (Unequal& one : out.unequal) {
      if (one.name == name_a && one.text.starts_with(kAlone))
        absl::StrAppend(&one.text, "; B has its bits as ", name_b, " (declare it with --map)");
    }
  }
  return out;
}

}  // namespace plumbline::audit
