// Handles plain values beyond the limit. The values made since a mark are dropped together, and a
// run represents them. No other value refers to them: nothing was added to values older than the
// mark (`lowest`), they contain no names (`special_`), and memo entries detect the drop by their
// offset.
#include <algorithm>

#include "audit/readers/pickle/machine_state.h"

namespace plumbline::audit {

void PickleMachine::Touch(PickleId target) {
  if (!marks_.empty()) marks_.back().lowest = std::min(marks_.back().lowest, target);
}

bool PickleMachine::IsPlainSince(const PickleMark& mark) const {
  return special_ < mark.nodes && mark.lowest >= mark.nodes;
}

bool PickleMachine::IsKeptWhole() const {
  const size_t floor = marks_.empty() ? 0 : marks_.back().height;
  if (limits_.whole.empty() || stack_.size() < floor + 2) return false;
  const PickleId key = stack_[stack_.size() - 2];
  return tree_.Is(key, PickleKind::kText) && tree_.text(key) == limits_.whole;
}

// Values in inner containers were already counted when these were built.
bool PickleMachine::KeepPlain(const PickleMark& mark) {
  const auto made = static_cast<uint32_t>(tree_.nodes_.size() - mark.nodes);
  const uint32_t counted = plain_ - mark.plain;
  const uint32_t own = made > counted ? made - counted : 0;
  if (own < limits_.few) return true;
  if (plain_ + own > limits_.plain) return false;
  plain_ += own;
  return true;
}

bool PickleMachine::Drop(const PickleMark& mark, uint64_t items, PickleId target, PickleKind kind) {
  PickleRun run;
  run.items = items;
  run.values = tree_.nodes_.size() - mark.nodes;
  for (size_t i = mark.runs; i < tree_.runs_.size(); ++i) run.values += tree_.runs_[i].values;
  run.begin = mark.at;
  run.end = static_cast<uint32_t>(at_);
  run.closed = recalled_ == mark.recalled;
  // Restore the state at the mark.
  tree_.nodes_.resize(mark.nodes);
  tree_.items_.resize(mark.lists);
  tree_.calls_.resize(mark.calls);
  tree_.runs_.resize(mark.runs);
  tree_.owned_.resize(mark.owned);
  items_ = mark.items;
  plain_ = mark.plain;
  const auto container = Container(target, kind);
  if (!container) return false;
  Touch(std::min(target, *container));
  return AddRun(*container, kind, run);
}

// Adds a run. Consecutive batches are merged into one run.
bool PickleMachine::AddRun(PickleId container, PickleKind kind, const PickleRun& run) {
  const uint32_t at = tree_.nodes_[container].span.at;
  const std::vector<PickleId>& items = tree_.items_[at];
  if (!items.empty() && tree_.Is(items.back(), PickleKind::kRun)) {
    PickleRun& before = tree_.runs_[tree_.nodes_[items.back()].span.at];
    if (before.end == run.begin) {
      before.items += run.items;
      before.values += run.values;
      before.end = run.end;
      before.closed &= run.closed;
      return true;
    }
  }
  const PickleId id = New(PickleKind::kRun);
  if (problem) return false;
  tree_.nodes_[id].span = {static_cast<uint32_t>(tree_.runs_.size()), 0};
  tree_.runs_.push_back(run);
  std::vector<PickleId> one(kind == PickleKind::kDict ? 2 : 1, id);
  return Grow(&tree_.items_[at], one);
}

// Restores a dropped value from the memo. Reads a text again from its bytes. For any other value,
// only knows that it was plain.
bool PickleMachine::RecallDropped(PickleMemo* memo) {
  const size_t at = at_, op_at = op_at_;
  const auto op = static_cast<PickleOp>(static_cast<unsigned char>(data_[memo->offset]));
  op_at_ = memo->offset;
  bool pushed = false;
  switch (op) {
    case PickleOp::kShortBinUnicode:
    case PickleOp::kBinUnicode:
    case PickleOp::kBinUnicode8:
    case PickleOp::kShortBinBytes:
    case PickleOp::kBinBytes:
    case PickleOp::kBinBytes8:
    case PickleOp::kShortBinString:
      at_ = memo->offset + size_t{1};
      pushed = op == PickleOp::kShortBinString ? StepOther(op) : Step(op);
      break;
    default:
      if ((pushed = PushNew(PickleKind::kRun))) {
        tree_.nodes_[stack_.back()].span = {static_cast<uint32_t>(tree_.runs_.size()), 0};
        tree_.runs_.push_back({1, 1, memo->offset, memo->offset + 1, false});
      }
  }
  at_ = at;
  op_at_ = op_at;
  if (pushed) memo->id = stack_.back();
  return pushed;
}

// Returns true for numpy's scalar constructor: loss histories are often lists of such scalars.
bool PickleMachine::IsNumpyScalar(PickleId callee) const {
  if (!tree_.Is(callee, PickleKind::kGlobal)) return false;
  const std::string_view name = tree_.text(callee);
  return name == "numpy.core.multiarray.scalar" || name == "numpy._core.multiarray.scalar";
}

}  // namespace plumbline::audit
