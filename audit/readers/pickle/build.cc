// Builds values, and adds items to containers and objects.
#include <algorithm>
#include <utility>

#include "audit/readers/pickle/machine_state.h"
#include "audit/readers/pickle/text.h"

namespace plumbline::audit {
namespace {

// Returns the name in Python 3 of a module of Python 2.
std::string_view ModuleOfToday(std::string_view module) {
  if (module == "__builtin__") return "builtins";
  if (module == "copy_reg") return "copyreg";
  if (module == "UserDict" || module == "UserList") return "collections";
  return module;
}

bool HasItems(PickleKind kind) {
  return kind == PickleKind::kList || kind == PickleKind::kTuple || kind == PickleKind::kSet ||
         kind == PickleKind::kDict || kind == PickleKind::kPersistent;
}

}  // namespace

// Creates a value. Beyond the limit, records the problem, and the next Push ends the run.
PickleId PickleMachine::New(PickleKind kind) {
  if (tree_.nodes_.size() >= limits_.values) {
    Fail("expected at most " + std::to_string(limits_.values) + " values, found more");
    return none_;
  }
  const auto id = static_cast<PickleId>(tree_.nodes_.size());
  PickleTree::Node& node = tree_.nodes_.emplace_back();
  node.kind = kind;
  node.offset = static_cast<uint32_t>(op_at_);
  if (kind == PickleKind::kGlobal || kind == PickleKind::kPersistent) special_ = id;
  if (HasItems(kind)) {
    node.span = {static_cast<uint32_t>(tree_.items_.size()), 0};
    tree_.items_.emplace_back();
  }
  return id;
}

bool PickleMachine::PushNew(PickleKind kind) {
  const PickleId id = New(kind);
  return !problem && Push(id);
}

bool PickleMachine::PushWhole(int64_t value) {
  if (!PushNew(PickleKind::kInt)) return false;
  tree_.nodes_[stack_.back()].whole = value;
  return true;
}

bool PickleMachine::PushReal(double value) {
  if (!PushNew(PickleKind::kReal)) return false;
  tree_.nodes_[stack_.back()].real = value;
  return true;
}

bool PickleMachine::PushSpan(PickleKind kind, std::string_view text) {
  if (!PushNew(kind)) return false;
  const auto at = text.empty() ? 0 : static_cast<uint32_t>(text.data() - data_.data());
  tree_.nodes_[stack_.back()].span = {at, static_cast<uint32_t>(text.size())};
  return true;
}

bool PickleMachine::PushOwned(PickleKind kind, std::string_view text) {
  if (!PushNew(kind)) return false;
  PickleTree::Node& node = tree_.nodes_[stack_.back()];
  node.owned = true;
  node.span = {static_cast<uint32_t>(tree_.owned_.size()), static_cast<uint32_t>(text.size())};
  tree_.owned_ += text;
  return true;
}

// Pushes a Python 2 string. Non-ASCII bytes may be text of any encoding, or a number's bytes.
bool PickleMachine::PushOldString(std::string_view text, bool in_data) {
  const PickleKind kind = IsAscii(text) ? PickleKind::kText : PickleKind::kBytes;
  return in_data ? PushSpan(kind, text) : PushOwned(kind, text);
}

bool PickleMachine::PushLong(std::string_view bytes) {
  if (bytes.size() > limits_.digits) {
    return Fail("expected a whole number of at most " + std::to_string(limits_.digits) +
                " bytes, found " + std::to_string(bytes.size()));
  }
  if (bytes.size() > 8) return PushSpan(PickleKind::kLong, bytes);
  uint64_t value = !bytes.empty() && (bytes.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return PushWhole(static_cast<int64_t>(value));
}

// Pushes a decimal number. Protocol 0 writes True and False as "01" and "00".
bool PickleMachine::PushDecimal(std::optional<std::string_view> line, bool truth) {
  if (!line) return false;
  if (truth && *line == "01") return Push(true_);
  if (truth && *line == "00") return Push(false_);
  if (line->size() > limits_.digits) {
    return Fail("expected a whole number of at most " + std::to_string(limits_.digits) +
                " digits, found " + std::to_string(line->size()));
  }
  std::optional<int64_t> small;
  std::string large;
  if (!ParseWhole(*line, &small, &large)) return Fail("expected a whole number in decimal");
  return small ? PushWhole(*small) : PushOwned(PickleKind::kLong, large);
}

bool PickleMachine::Grow(std::vector<PickleId>* items, const std::vector<PickleId>& more) {
  items_ += more.size();
  if (items_ > limits_.items) {
    return Fail("expected at most " + std::to_string(limits_.items) +
                " items in all containers, found more");
  }
  items->insert(items->end(), more.begin(), more.end());
  return true;
}

bool PickleMachine::PushItems(PickleKind kind, std::vector<PickleId> items) {
  if (!PushNew(kind)) return false;
  return Grow(&tree_.items_[tree_.nodes_[stack_.back()].span.at], items);
}

bool PickleMachine::PushTuple(size_t size) {
  std::vector<PickleId> items(size);
  for (size_t i = size; i-- > 0;) {
    const auto item = Pop();
    if (!item) return false;
    items[i] = *item;
  }
  return PushItems(PickleKind::kTuple, std::move(items));
}

bool PickleMachine::PushPersistent(PickleId id) { return PushItems(PickleKind::kPersistent, {id}); }

// Pushes a name. Each name is stored once.
bool PickleMachine::PushGlobal(std::string_view module, std::string_view name) {
  if (module.size() > limits_.name || name.size() > limits_.name) {
    return Fail("expected names of at most " + std::to_string(limits_.name) + " bytes, found " +
                std::to_string(std::max(module.size(), name.size())));
  }
  const std::string whole = std::string(ModuleOfToday(module)) + "." + std::string(name);
  if (const auto known = globals_.find(whole); known != globals_.end()) return Push(known->second);
  if (globals_.size() >= limits_.globals) {
    return Fail("expected at most " + std::to_string(limits_.globals) +
                " different globals, found more");
  }
  if (!PushOwned(PickleKind::kGlobal, whole)) return false;
  globals_[whole] = stack_.back();
  return true;
}

bool PickleMachine::StackGlobal() {
  const auto name = Pop();
  const auto module = name ? Pop() : std::nullopt;
  if (!module) return false;
  if (!tree_.Is(*name, PickleKind::kText) || !tree_.Is(*module, PickleKind::kText))
    return Fail("expected a module and a name as texts");
  // Copy the texts: views into `owned_` would become invalid.
  const std::string name_text(tree_.text(*name).substr(0, limits_.name + 1));
  const std::string module_text(tree_.text(*module).substr(0, limits_.name + 1));
  return PushGlobal(module_text, name_text);
}

std::optional<PickleId> PickleMachine::Container(PickleId target, PickleKind kind) {
  PickleTree::Node& node = tree_.nodes_[target];
  if (node.kind == kind) return target;
  if (node.kind != PickleKind::kCall) {
    Fail(kind == PickleKind::kDict  ? "expected a dict to set items in, found another value"
         : kind == PickleKind::kSet ? "expected a set to add to, found another value"
                                    : "expected a list to append to, found another value");
    return std::nullopt;
  }
  const uint32_t at = node.span.at;
  const bool entries = kind == PickleKind::kDict;
  if ((entries ? tree_.calls_[at].entries : tree_.calls_[at].items) == kNoPickle) {
    const PickleId made = New(entries ? kind : PickleKind::kList);
    (entries ? tree_.calls_[at].entries : tree_.calls_[at].items) = made;
  }
  if (problem) return std::nullopt;
  return entries ? tree_.calls_[at].entries : tree_.calls_[at].items;
}

// The target is below the values that were taken from the stack.
bool PickleMachine::Extend(std::optional<std::vector<PickleId>> items, PickleKind kind) {
  const auto target = items ? Top() : std::nullopt;
  if (!target) return false;
  if (kind == PickleKind::kDict && items->size() % 2 != 0)
    return Fail("expected a value for each key");
  const auto container = Container(*target, kind);
  if (!container) return false;
  Touch(std::min(*target, *container));
  return Grow(&tree_.items_[tree_.nodes_[*container].span.at], *items);
}

// Extends a container. Values that are all plain are kept up to the limit.
bool PickleMachine::ExtendAll(PickleKind kind) {
  PickleMark mark;
  auto items = PopToMark(&mark);
  const auto target = items ? Top() : std::nullopt;
  if (!target) return false;
  // A container of a list that is kept whole is kept, too.
  const bool whole = IsKeptWhole();
  if (whole) special_ = static_cast<PickleId>(tree_.nodes_.size() - 1);
  if (whole || !IsPlainSince(mark) || KeepPlain(mark)) return Extend(std::move(items), kind);
  if (kind == PickleKind::kDict && items->size() % 2 != 0)
    return Fail("expected a value for each key");
  return Drop(mark, items->size(), *target, kind);
}

// Sets the state of an object. Attributes of a plain container have no meaning here and are
// dropped.
bool PickleMachine::Build() {
  const auto state = Pop();
  const auto target = state ? Top() : std::nullopt;
  if (!target) return false;
  if (tree_.Is(*target, PickleKind::kCall)) {
    Touch(*target);
    tree_.calls_[tree_.nodes_[*target].span.at].state = *state;
  }
  return true;
}

bool PickleMachine::PushCall(PickleId callee, PickleId arguments, PickleId keywords) {
  if (!PushNew(PickleKind::kCall)) return false;
  if (!IsNumpyScalar(callee)) special_ = stack_.back();
  tree_.nodes_[stack_.back()].span = {static_cast<uint32_t>(tree_.calls_.size()), 0};
  PickleCall& call = tree_.calls_.emplace_back();
  call.callee = callee;
  call.arguments = arguments;
  call.keywords = keywords;
  return true;
}

}  // namespace plumbline::audit
