#include "audit/checkpoints/value_entries.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "audit/checkpoints/value_text.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostOfPlace = 512;  // bytes

std::string NameOfKey(const Value& key) {
  if (key.tree().Is(key.id, PickleKind::kText))
    return ValidUtf8(key.tree().text(key.id).substr(0, kMostOfPlace));
  return DescribeValue(key.file(), key.id);
}

}  // namespace

std::vector<ValueEntry> EntriesOf(const Value& dict) {
  std::vector<ValueEntry> out;
  const std::vector<PickleId>& pairs = dict.tree().items(dict.id);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (dict.tree().Is(pairs[i], PickleKind::kRun)) continue;
    out.push_back({ValueKey(dict.tree(), pairs[i]),
                   NameOfKey({dict.root, pairs[i]}),
                   {dict.root, pairs[i + 1]}});
  }
  return out;
}

std::vector<PickleId> RunsOf(const Value& container) {
  std::vector<PickleId> runs;
  if (!container.tree().has_runs()) return runs;
  for (const PickleId item : container.tree().items(container.id)) {
    if (container.tree().Is(item, PickleKind::kRun) && (runs.empty() || runs.back() != item))
      runs.push_back(item);
  }
  return runs;
}

bool AreSameRuns(const Value& a, const Value& b) {
  return a.tree().run(a.id).closed && b.tree().run(b.id).closed &&
         a.tree().run_bytes(a.id) == b.tree().run_bytes(b.id);
}

std::string PlaceUnder(const std::string& place, const std::string& name) {
  return place.empty() ? name : absl::StrCat(place, ".", name).substr(0, kMostOfPlace);
}

void Alone::Add(const Alone& more) {
  if (count == 0) first = more.first;
  count += more.count;
}

void SetAside(const std::string& whose, const Alone& alone, Equality* out) {
  if (alone.count == 0) return;
  out->aside.push_back(absl::StrCat(whose, " ", Plural(alone.count, "value"), " (", alone.first,
                                    alone.count > 1 ? ", ...)" : ")"));
}

void ValueCounter::Count(const Value& value, const std::string& place, Alone* alone) {
  const PickleTree& tree = value.tree();
  if (value.named() || tree.Is(value.id, PickleKind::kNone) || left_out_.Take(names_, place) ||
      !seen_.emplace(value.root, value.id).second)
    return;
  const ValueForm form = FormOfValue(value.file(), value.id);
  if (form == ValueForm::kDict) {
    for (const ValueEntry& entry : EntriesOf(value))
      Count(entry.value, PlaceUnder(place, entry.name), alone);
    for (const PickleId run : RunsOf(value)) alone->Add({tree.run(run).items / 2, place});
  } else if (form == ValueForm::kList || form == ValueForm::kTuple) {
    const std::vector<PickleId>& items = tree.items(value.id);
    const bool plain = std::all_of(items.begin(), items.end(), [&](PickleId item) {
      const ValueForm of = FormOfValue(value.file(), item);
      return of == ValueForm::kScalar || of == ValueForm::kRun;
    });
    if (plain && !items.empty()) return alone->Add({1, place});
    for (size_t i = 0; i < items.size(); ++i)
      Count({value.root, items[i]}, PlaceUnder(place, absl::StrCat(i)), alone);
  } else if (form == ValueForm::kCall) {
    CountCall(value, place, alone);
  } else {
    alone->Add({1, place});
  }
}

// A module that was saved whole counts as its tensors. Any other object counts as at least one
// value.
void ValueCounter::CountCall(const Value& value, const std::string& place, Alone* alone) {
  const PickleCall& call = value.tree().call(value.id);
  Alone parts;
  bool named = false;
  size_t visits = 4096;
  for (const PickleId part : {call.state, call.items, call.entries}) {
    if (part == kNoPickle) continue;
    named |= HasNamed({value.root, part}, &visits);
    Count({value.root, part}, place, &parts);
  }
  if (parts.count == 0 && !named) parts = {1, place};
  alone->Add(parts);
}

bool HasNamed(const Value& value, size_t* visits) {
  if (*visits == 0) return false;
  --*visits;
  if (value.named()) return true;
  const PickleTree& tree = value.tree();
  const auto in = [&](PickleId id) {
    return id != kNoPickle && HasNamed({value.root, id}, visits);
  };
  switch (FormOfValue(value.file(), value.id)) {
    case ValueForm::kDict:
    case ValueForm::kList:
    case ValueForm::kTuple: {
      const std::vector<PickleId>& items = tree.items(value.id);
      return std::any_of(items.begin(), items.end(), in);
    }
    case ValueForm::kCall:
      return in(tree.call(value.id).state) || in(tree.call(value.id).entries);
    default:
      return false;
  }
}

}  // namespace plumbline::audit
