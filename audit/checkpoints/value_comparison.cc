#include "audit/checkpoints/value_comparison.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "audit/checkpoints/bit_difference.h"
#include "audit/checkpoints/value_text.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostReported = 4096;             // differences reported
constexpr size_t kMostVisits = size_t{1} << 24;    // values visited
constexpr size_t kMostNameless = size_t{1} << 16;  // unnamed tensors read

std::string InBoth(const std::string& a, const std::string& b) {
  return absl::StrCat(a, " in A, ", b, " in B");
}

std::string Described(const Value& value) { return DescribeValue(value.file(), value.id); }

std::string BytesOfElement(const std::string& bytes, size_t i, const NumpyValue& of) {
  std::string element = bytes.substr(i * DTypeSize(of.dtype), DTypeSize(of.dtype));
  if (of.swapped) std::reverse(element.begin(), element.end());
  return element;
}

std::string ElementOf(const std::string& bytes, size_t i, const NumpyValue& of) {
  const std::string element = BytesOfElement(bytes, i, of);
  return ElementText(reinterpret_cast<const std::byte*>(element.data()), of.dtype, 0);
}

// Returns an array's bytes in row-major order, for any stored order.
std::string BytesByRows(const Value& value, const NumpyValue& array) {
  const std::string bytes = value.tree().bytes(array.bytes);
  if (!array.columns_first) return bytes;
  const size_t width = DTypeSize(array.dtype), count = bytes.size() / width;
  std::string out(count * width, '\0');
  std::vector<size_t> index(array.shape.size(), 0);
  for (size_t at = 0; at < count; ++at) {
    // Find the stored position of the element that is at `at` in row-major order.
    size_t from = 0, stride = 1;
    for (size_t axis = 0; axis < index.size(); ++axis) {
      from += index[axis] * stride;
      stride *= static_cast<size_t>(array.shape[axis]);
    }
    if (from < count) std::memcpy(out.data() + at * width, bytes.data() + from * width, width);
    for (size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < static_cast<size_t>(array.shape[axis])) break;
      index[axis] = 0;
    }
  }
  return out;
}

// Returns true for values that count as lost if they are missing, even if they are None, an empty
// container or a number.
bool IsPlain(const Value& value) {
  switch (FormOfValue(value.file(), value.id)) {
    case ValueForm::kDict:
    case ValueForm::kList:
    case ValueForm::kTuple:
      return value.tree().items(value.id).empty();
    case ValueForm::kCall:
      return false;
    default:
      return !value.named();
  }
}

// Returns "args" for "args.lr", as in a flat dict. If the name has no section, returns "".
std::string_view SectionOf(std::string_view name) {
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? "" : name.substr(0, dot);
}

// Returns a predicate. It returns true if a name that these entries lack was expected among them.
// Below the outermost dicts every name is expected.
auto NextToOthers(const std::string& place, const std::vector<ValueEntry>& entries) {
  absl::flat_hash_set<std::string_view> sections;
  for (const ValueEntry& entry : entries) {
    if (place.empty()) sections.insert(SectionOf(entry.name));
  }
  sections.erase("");
  return [inner = !place.empty(), sections = std::move(sections)](std::string_view name) {
    return inner || sections.contains(SectionOf(name));
  };
}

}  // namespace

absl::Status ValueComparison::Compare(const std::vector<ValueEntry>& a,
                                      const std::vector<ValueEntry>& b) {
  CompareEntries(a, b, "");
  if (over_ > 0) out_.unequal.push_back({"values", absl::StrCat("and ", over_, " more differ")});
  if (visits_ > kMostVisits)
    out_.unread.push_back(absl::StrCat("what comes after ", kMostVisits, " values"));
  if (open_.count > 0) {
    out_.unread.push_back(absl::StrCat(
        open_.first, open_.count > 1 ? absl::StrCat(" and ", open_.count - 1, " more") : "",
        ": plain values of long lists, which were counted but not stored"));
  }
  if (tensors_ > kMostNameless)
    out_.unread.push_back(absl::StrCat("what comes after ", kMostNameless, " tensors of no name"));
  return status_;
}

void ValueComparison::Emit(const std::string& place, std::string text) {
  if (reported_.contains(place.substr(place.rfind('.') + 1))) return;
  if (out_.unequal.size() >= kMostReported) {
    ++over_;
  } else {
    out_.unequal.push_back({place, std::move(text)});
  }
}

void ValueComparison::ReportBoth(const Value& a, const Value& b, const std::string& place) {
  Emit(place, InBoth(Described(a), Described(b)));
}

void ValueComparison::CompareEntries(const std::vector<ValueEntry>& a,
                                     const std::vector<ValueEntry>& b, const std::string& place) {
  absl::flat_hash_map<std::string_view, const ValueEntry*> of_b;
  for (const ValueEntry& entry : b) of_b.emplace(entry.key, &entry);
  const auto next_to_b = NextToOthers(place, b), next_to_a = NextToOthers(place, a);
  absl::flat_hash_set<std::string_view> keys, names_alone;
  for (const ValueEntry& entry : a) {
    if (!keys.insert(entry.key).second) continue;
    const std::string name = PlaceUnder(place, entry.name);
    const auto at = of_b.find(entry.key);
    if (at != of_b.end()) {
      CompareOne(entry.value, at->second->value, name);
    } else {
      names_alone.insert(entry.name);
      ReportAlone(entry, name, next_to_b(entry.name), true);
    }
  }
  for (const ValueEntry& entry : b) {
    if (!keys.insert(entry.key).second) continue;
    const std::string name = PlaceUnder(place, entry.name);
    // A tensor with the same name is compared by that name (keys 1 and "1").
    if (entry.value.named() && names_alone.contains(entry.name) && !out_.conversion)
      Emit(name, "keys of two types with the same text");
    ReportAlone(entry, name, next_to_a(entry.name), false);
  }
}

// Records a value that one side lacks. A whole part of the file may be missing; a single value may
// not.
void ValueComparison::ReportAlone(const ValueEntry& entry, const std::string& name, bool adjacent,
                                  bool of_a) {
  if (!adjacent || out_.conversion)
    return counter_.Count(entry.value, name, of_a ? &only_a : &only_b);
  Alone lost;
  lost_.Count(entry.value, name, &lost);
  // A tensor is reported by its name, unless its kind was set aside.
  size_t visits = out_.kinds_aside ? 4096 : 0;
  const bool plain =
      (IsPlain(entry.value) || (lost.count == 0 && HasNamed(entry.value, &visits))) &&
      !left_out_.Take(names_, name);
  if (plain || lost.count > 0) {
    Emit(plain ? name : lost.first,
         absl::StrCat("only in ", of_a ? "A" : "B",
                      lost.count > 1 ? absl::StrCat(" (1 of ", lost.count, " values)") : ""));
  }
}

// If a schedule stores a bound method of itself, the pickle contains the schedule and its optimizer
// again. Such methods are skipped.
bool ValueComparison::SkipMethods(const Value& a, const Value& b, const std::string& place) {
  const std::string of_a = MethodOf(a.tree(), a.id);
  if (of_a.empty() || of_a != MethodOf(b.tree(), b.id)) return false;
  out_.notes.push_back(absl::StrCat(place, " is ", of_a, ", a method: its contents are not state"));
  ++out_.values;
  return true;
}

void ValueComparison::CompareOne(const Value& of_a, const Value& of_b, const std::string& place) {
  const Value a{of_a.root, TextOrItself(of_a.tree(), of_a.id)};
  const Value b{of_b.root, TextOrItself(of_b.tree(), of_b.id)};
  if (++visits_ > kMostVisits || !status_.ok() || left_out_.Take(names_, place)) return;
  const ValueForm form = FormOfValue(a.file(), a.id), form_b = FormOfValue(b.file(), b.id);
  if (form == ValueForm::kRun || form_b == ValueForm::kRun) return LeaveOpen(place);
  if (form != form_b) {
    // A conversion may arrange tensors that are compared by name in another structure.
    size_t visits_a = 4096, visits_b = 4096;
    if (!out_.conversion || (!HasNamed(a, &visits_a) && !HasNamed(b, &visits_b)))
      return ReportBoth(a, b, place);
    counter_.Count(a, place, &only_a);
    counter_.Count(b, place, &only_b);
    return;
  }
  if (form == ValueForm::kScalar) return CompareScalars(a, b, place);
  // A bytearray is mutable and bytes are not, although Python compares them as equal, like 3 and
  // 3.0.
  if ((form == ValueForm::kSet || form == ValueForm::kBytes) &&
      a.tree().variant(a.id) != b.tree().variant(b.id))
    return ReportBoth(a, b, place);
  if (!met_.emplace(a.root, a.id, b.root, b.id).second) return;
  switch (form) {
    case ValueForm::kScalar:
    case ValueForm::kRun:
    case ValueForm::kText:
    case ValueForm::kBytes:
      return CompareStrings(a, b, place);
    case ValueForm::kTensor:
      return CompareTensors(a, b, place);
    case ValueForm::kArray:
      return CompareArrays(a, b, place);
    case ValueForm::kList:
    case ValueForm::kTuple:
      return CompareLists(a, b, place);
    case ValueForm::kSet:
      return CompareSets(a, b, place);
    case ValueForm::kDict:
      return CompareDicts(a, b, place);
    case ValueForm::kCall:
      return CompareCalls(a, b, place);
    case ValueForm::kStorage:
      return CompareStorages(a, b, place);
  }
}

void ValueComparison::CompareScalars(const Value& a, const Value& b, const std::string& place) {
  const std::string of_a = ScalarText(a.tree(), a.id), of_b = ScalarText(b.tree(), b.id);
  if (of_a == of_b) {
    ++out_.values;
  } else {
    Emit(place, InBoth(of_a, of_b));
  }
}

void ValueComparison::CompareStrings(const Value& a, const Value& b, const std::string& place) {
  const auto content = [](const Value& value) {
    return value.tree().Is(value.id, PickleKind::kText) ? std::string(value.tree().text(value.id))
                                                        : value.tree().bytes(value.id);
  };
  const std::string of_a = content(a), of_b = content(b);
  if (of_a == of_b) {
    ++out_.values;
    return;
  }
  std::string stated = InBoth(Described(a), Described(b));
  if (Described(a) == Described(b)) {
    const auto at = std::mismatch(of_a.begin(), of_a.end(), of_b.begin(), of_b.end()).first;
    absl::StrAppend(&stated, " (they differ from byte ", at - of_a.begin(), " on)");
  }
  Emit(place, std::move(stated));
}

void ValueComparison::CompareArrays(const Value& a, const Value& b, const std::string& place) {
  if (Described(a) != Described(b)) return ReportBoth(a, b, place);
  const NumpyValue of = *ReadNumpy(a.tree(), a.id);
  const std::string of_a = BytesByRows(a, of);
  const std::string of_b = BytesByRows(b, *ReadNumpy(b.tree(), b.id));
  const size_t count = of_a.size() / DTypeSize(of.dtype);
  if (of_a == of_b) {
    ++out_.values;
    return;
  }
  if (of_a.size() != of_b.size()) return Emit(place, "arrays of different sizes");
  std::string first;
  size_t differ = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t width = DTypeSize(of.dtype);
    if (std::memcmp(of_a.data() + i * width, of_b.data() + i * width, width) == 0) continue;
    if (differ++ > 0) continue;
    first =
        absl::StrCat("element ", i, " is ", InBoth(ElementOf(of_a, i, of), ElementOf(of_b, i, of)));
  }
  Emit(place, absl::StrCat(first, " (", differ, " of ", count, " differ)"));
}

// Compares two objects by their parts: class, arguments and state.
void ValueComparison::CompareCalls(const Value& a, const Value& b, const std::string& place) {
  const std::string name = CalleeName(a.tree(), a.id);
  if (name != CalleeName(b.tree(), b.id)) return ReportBoth(a, b, place);
  if (SkipMethods(a, b, place)) return;
  ++out_.values;  // the class
  const auto parts = [](const Value& value) {
    const PickleCall& call = value.tree().call(value.id);
    // If the callee has a name, only the name is compared.
    const PickleId callee = value.tree().callee(value.id).empty() ? call.callee : kNoPickle;
    return std::vector<PickleId>{callee,     call.arguments, call.keywords,
                                 call.state, call.items,     call.entries};
  };
  const std::vector<PickleId> of_a = parts(a), of_b = parts(b);
  for (size_t i = 0; i < of_a.size(); ++i) {
    if ((of_a[i] == kNoPickle) != (of_b[i] == kNoPickle)) {
      Emit(place, absl::StrCat("calls of ", name, ", one with more parts"));
    } else if (of_a[i] != kNoPickle) {
      CompareParts({a.root, of_a[i]}, {b.root, of_b[i]}, place);
    }
  }
}

// If both calls have a single argument, compares it at the place of the call, so that a counter's
// keys have no extra level.
void ValueComparison::CompareParts(const Value& a, const Value& b, const std::string& place) {
  const auto single = [](const Value& value) {
    return value.tree().Is(value.id, PickleKind::kTuple) &&
           value.tree().items(value.id).size() == 1;
  };
  if (!single(a) || !single(b)) return CompareOne(a, b, place);
  CompareOne({a.root, a.tree().items(a.id)[0]}, {b.root, b.tree().items(b.id)[0]}, place);
}

void ValueComparison::CompareTensors(const Value& a, const Value& b, const std::string& place) {
  if (a.named() && b.named()) return;
  std::string wrong;
  const std::optional<StoredTensor> of_a = a.file().Tensor(a.id, &wrong);
  const std::optional<StoredTensor> of_b = b.file().Tensor(b.id, &wrong);
  CompareStored(of_a, of_b, wrong, a, b, place);
}

// Compares storages that belong to no known tensor (of a quantised tensor, or saved alone).
void ValueComparison::CompareStorages(const Value& a, const Value& b, const std::string& place) {
  const auto type = [](const Value& value) {
    const PickleId id = value.tree().items(value.id)[0];
    const bool fits = value.tree().Is(id, PickleKind::kTuple) && value.tree().items(id).size() >= 2;
    return fits ? ScalarText(value.tree(), value.tree().items(id)[1]) : std::string("no storage");
  };
  if (type(a) != type(b)) return Emit(place, InBoth(type(a), type(b)));
  std::string wrong;
  const std::optional<StoredTensor> of_a = a.file().StorageBytes(a.id, &wrong);
  const std::optional<StoredTensor> of_b = b.file().StorageBytes(b.id, &wrong);
  CompareStored(of_a, of_b, wrong, a, b, place);
}

void ValueComparison::CompareStored(const std::optional<StoredTensor>& of_a,
                                    const std::optional<StoredTensor>& of_b,
                                    const std::string& wrong, const Value& a, const Value& b,
                                    const std::string& place) {
  if (!of_a || !of_b) {
    out_.unread.push_back(absl::StrCat(place, " (", wrong, ")"));
    return;
  }
  if (++tensors_ > kMostNameless) return;
  const auto tensor = [&](const Value& value, const StoredTensor& stored) {
    return ComparedTensor{place, place, TensorKind::kOther, {{&value.file().file(), stored, 0}}};
  };
  const absl::StatusOr<bool> equal =
      CompareTensorPair(tensor(a, *of_a), tensor(b, *of_b), &reader_, &out_);
  if (!equal.ok()) {
    status_ = equal.status();
  } else if (*equal) {
    ++out_.values;
  }
}

}  // namespace plumbline::audit
