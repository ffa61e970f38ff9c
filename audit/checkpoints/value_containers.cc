// Compares lists, sets and dicts, and the runs of values in them that were not kept.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "audit/checkpoints/value_comparison.h"
#include "audit/checkpoints/value_text.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostEach = 64;  // items of a list reported one by one

}  // namespace

// Compares every item of a short list. For a long list (a random generator's state), reports only
// the first difference.
void ValueComparison::CompareLists(const Value& a, const Value& b, const std::string& place) {
  const std::vector<PickleId>& of_a = a.tree().items(a.id);
  const std::vector<PickleId>& of_b = b.tree().items(b.id);
  if (a.tree().length(a.id) != b.tree().length(b.id)) ReportBoth(a, b, place);
  const size_t count = std::min(of_a.size(), of_b.size());
  size_t differ = 0;
  for (size_t i = 0; i < count; ++i) {
    // After values that were not kept, positions are unknown.
    const bool run =
        a.tree().Is(of_a[i], PickleKind::kRun) || b.tree().Is(of_b[i], PickleKind::kRun);
    if (run && !CompareRuns({a.root, of_a[i]}, {b.root, of_b[i]}, place)) break;
    if (run) continue;
    const size_t reported = out_.unequal.size();
    CompareOne({a.root, of_a[i]}, {b.root, of_b[i]}, PlaceUnder(place, absl::StrCat(i)));
    if (out_.unequal.size() == reported) continue;
    if (count > kMostEach && differ > 0) out_.unequal.resize(reported);
    ++differ;
  }
  if (count > kMostEach && differ > 1)
    absl::StrAppend(&out_.unequal.back().text, " (", differ, " of ", count, " items differ)");
}

// Compares dicts of which some values were not kept. If both sides lack the same values, compares
// all entries. Otherwise entries that only one side has are not compared.
void ValueComparison::CompareDicts(const Value& a, const Value& b, const std::string& place) {
  if (CompareAllRuns(a, b)) return CompareEntries(EntriesOf(a), EntriesOf(b), place);
  LeaveOpen(place);
  std::vector<ValueEntry> of_a = EntriesOf(a), of_b = EntriesOf(b);
  const auto keep = [](std::vector<ValueEntry>* entries, const std::vector<ValueEntry>& others) {
    absl::flat_hash_set<std::string_view> keys;
    for (const ValueEntry& entry : others) keys.insert(entry.key);
    std::erase_if(*entries, [&](const ValueEntry& entry) { return !keys.contains(entry.key); });
  };
  keep(&of_a, of_b);
  keep(&of_b, of_a);
  CompareEntries(of_a, of_b, place);
}

// For dicts and sets: returns true if both lack the same values, or none.
bool ValueComparison::CompareAllRuns(const Value& a, const Value& b) {
  const std::vector<PickleId> of_a = RunsOf(a), of_b = RunsOf(b);
  const auto same = [&](PickleId x, PickleId y) { return AreSameRuns({a.root, x}, {b.root, y}); };
  if (!std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), same)) return false;
  for (const PickleId run : of_a) out_.values += a.tree().run(run).values;
  return true;
}

// Returns true if both runs consist of the same values.
bool ValueComparison::CompareRuns(const Value& a, const Value& b, const std::string& place) {
  const bool both = a.tree().Is(a.id, PickleKind::kRun) && b.tree().Is(b.id, PickleKind::kRun);
  if (!both || !AreSameRuns(a, b)) {
    LeaveOpen(place);
    return false;
  }
  out_.values += a.tree().run(a.id).values;
  return true;
}

void ValueComparison::LeaveOpen(const std::string& place) { open_.Add({1, place}); }

void ValueComparison::CompareSets(const Value& a, const Value& b, const std::string& place) {
  const auto keys = [](const Value& set) {
    std::set<std::string> out;
    for (const PickleId item : set.tree().items(set.id)) {
      if (!set.tree().Is(item, PickleKind::kRun)) out.insert(ValueKey(set.tree(), item));
    }
    return out;
  };
  if (!CompareAllRuns(a, b)) return LeaveOpen(place);
  const std::set<std::string> of_a = keys(a), of_b = keys(b);
  if (of_a == of_b) {
    ++out_.values;
    return;
  }
  std::string first;
  const auto alone = [&](const Value& set, const std::set<std::string>& others, const char* where) {
    for (const PickleId item : set.tree().items(set.id)) {
      if (first.empty() && !set.tree().Is(item, PickleKind::kRun) &&
          !others.contains(ValueKey(set.tree(), item)))
        first = absl::StrCat(DescribeValue(set.file(), item), where);
    }
  };
  alone(a, of_b, " is only in A's set");
  alone(b, of_a, " is only in B's set");
  Emit(place, first);
}

}  // namespace plumbline::audit
