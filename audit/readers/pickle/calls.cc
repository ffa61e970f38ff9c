// Handles calls. Calls of Python's plain types become values; all others remain calls.
#include <utility>

#include "audit/readers/pickle/machine_state.h"
#include "audit/readers/pickle/text.h"

namespace plumbline::audit {

std::optional<PickleId> PickleMachine::Argument(PickleId arguments, size_t i) const {
  if (!tree_.Is(arguments, PickleKind::kTuple)) return std::nullopt;
  const std::vector<PickleId>& items = tree_.items(arguments);
  return i < items.size() ? std::optional<PickleId>(items[i]) : std::nullopt;
}

bool PickleMachine::Reduce() {
  const auto arguments = Pop();
  const auto callee = arguments ? Pop() : std::nullopt;
  if (!callee) return false;
  if (!tree_.Is(*arguments, PickleKind::kTuple))
    return Fail("expected a tuple of arguments, found another value");
  // Protocols 0 and 1 make objects with a helper whose first argument is the class.
  if (tree_.Is(*callee, PickleKind::kGlobal)) {
    const std::string_view name = tree_.text(*callee);
    const auto type = Argument(*arguments, 0);
    if ((name == "copyreg._reconstructor" || name == "copyreg.__newobj__") && type)
      return Call(*type, *arguments);
  }
  return Call(*callee, *arguments);
}

bool PickleMachine::NewObject(bool with_keywords) {
  const auto keywords = with_keywords ? Pop() : std::optional<PickleId>(kNoPickle);
  const auto arguments = keywords ? Pop() : std::nullopt;
  const auto callee = arguments ? Pop() : std::nullopt;
  if (!callee) return false;
  if (!tree_.Is(*arguments, PickleKind::kTuple))
    return Fail("expected a tuple of arguments, found another value");
  if (with_keywords) return PushCall(*callee, *arguments, *keywords);
  return Call(*callee, *arguments);
}

bool PickleMachine::Instance() {
  const auto module = Line("a module");
  const auto name = module ? Line("a name in a module") : std::nullopt;
  auto items = name ? PopToMark() : std::nullopt;
  if (!items || !PushGlobal(*module, *name)) return false;
  const PickleId callee = *Pop();
  if (!PushItems(PickleKind::kTuple, *std::move(items))) return false;
  return Call(callee, *Pop());
}

bool PickleMachine::Object() {
  auto items = PopToMark();
  if (!items) return false;
  if (items->empty()) return Fail("expected a class and its arguments, found nothing");
  const PickleId callee = items->front();
  items->erase(items->begin());
  if (!PushItems(PickleKind::kTuple, *std::move(items))) return false;
  return Call(callee, *Pop());
}

bool PickleMachine::Call(PickleId callee, PickleId arguments) {
  if (tree_.Is(callee, PickleKind::kGlobal)) {
    if (const auto pushed = PlainCall(tree_.text(callee), arguments)) return *pushed;
  }
  return PushCall(callee, arguments);
}

std::optional<bool> PickleMachine::PlainCall(std::string_view name, PickleId arguments) {
  const auto first = Argument(arguments, 0);
  if (name == "builtins.set" || name == "builtins.frozenset") {
    const bool frozen = name == "builtins.frozenset";
    if (!first) return PushNew(PickleKind::kSet) && SetVariant(frozen);
    if (!tree_.Is(*first, PickleKind::kList) && !tree_.Is(*first, PickleKind::kTuple))
      return std::nullopt;
    return PushSameItems(PickleKind::kSet, *first) && SetVariant(frozen);
  }
  if (name == "builtins.bytes" || name == "builtins.bytearray") {
    const bool array = name == "builtins.bytearray";
    if (!first) return PushSpan(PickleKind::kBytes, {}) && SetVariant(array);
    // Protocol 2 writes a bytearray as (text, "latin-1").
    const bool text = array && tree_.Is(*first, PickleKind::kText) && Argument(arguments, 1);
    if (text) {
      const auto encoded = PlainCall("_codecs.encode", arguments);
      return encoded && *encoded ? SetVariant(true) : encoded;
    }
    if (!tree_.Is(*first, PickleKind::kBytes)) return std::nullopt;
    return PushBytesOf(*first) && SetVariant(array);
  }
  if (name == "_codecs.encode") {
    const auto codec = Argument(arguments, 1);
    if (!first || !codec || !tree_.Is(*first, PickleKind::kText) ||
        !tree_.Is(*codec, PickleKind::kText))
      return std::nullopt;
    const std::string_view how = tree_.text(*codec);
    if (how != "latin1" && how != "latin-1") return std::nullopt;
    // Checks each text only once.
    PickleTree::Node& node = tree_.nodes_[*first];
    if (!node.latin && !IsLatin(tree_.text(*first)))
      return Fail("expected a text of latin-1 letters, found others");
    node.latin = true;
    const bool large = node.span.size > kMostOfScalar;
    const bool pushed = PushBytesOf(*first);
    if (pushed && large) special_ = stack_.back();
    return pushed;
  }
  if (name == "collections.OrderedDict") return PushPairs(arguments);
  if (name == "collections.defaultdict") return PushNew(PickleKind::kDict);
  return std::nullopt;
}

// Sets the flag of the value on top.
bool PickleMachine::SetVariant(bool variant) {
  tree_.nodes_[stack_.back()].variant = variant;
  return true;
}

// Pushes a container of another kind that shares the items of `of`.
bool PickleMachine::PushSameItems(PickleKind kind, PickleId of) {
  if (!PushNew(kind)) return false;
  tree_.items_.pop_back();
  tree_.nodes_[stack_.back()].span = tree_.nodes_[of].span;
  return true;
}

bool PickleMachine::PushBytesOf(PickleId id) {
  if (!PushSpan(PickleKind::kBytes, {})) return false;
  PickleTree::Node& node = tree_.nodes_[stack_.back()];
  const PickleTree::Node& of = tree_.nodes_[id];
  node.owned = of.owned;
  node.latin = of.latin;
  node.span = of.span;
  return true;
}

// Handles OrderedDict(), or OrderedDict([[key, value], ...]) as Python 2 wrote it.
bool PickleMachine::PushPairs(PickleId arguments) {
  const auto list = Argument(arguments, 0);
  if (!PushNew(PickleKind::kDict) || !list) return !problem;
  if (!tree_.Is(*list, PickleKind::kList)) return Fail("expected a list of pairs");
  std::vector<PickleId> pairs;
  for (const PickleId pair : tree_.items(*list)) {
    const bool row = tree_.Is(pair, PickleKind::kList) || tree_.Is(pair, PickleKind::kTuple);
    if (!row || tree_.items(pair).size() != 2) return Fail("expected a list of pairs");
    pairs.insert(pairs.end(), tree_.items(pair).begin(), tree_.items(pair).end());
  }
  return Grow(&tree_.items_[tree_.nodes_[stack_.back()].span.at], pairs);
}

}  // namespace plumbline::audit
