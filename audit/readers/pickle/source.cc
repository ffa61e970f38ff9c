// Reads the bytes of a pickle, with a check of each read. Implements the stack and the memo.
#include <utility>

#include "audit/readers/pickle/machine_state.h"

namespace plumbline::audit {
namespace {

// Limit of memo entries with numbers that are not consecutive.
constexpr size_t kMostFar = size_t{1} << 19;

}  // namespace

bool PickleMachine::Fail(std::string text) {
  if (!problem) problem = Problem{op_at_, std::move(text)};
  return false;
}

std::optional<std::string_view> PickleMachine::Take(uint64_t size, const char* what) {
  const uint64_t left = data_.size() - at_;
  if (size > left) {
    Fail("expected " + std::to_string(size) + " bytes of " + what + ", found " +
         std::to_string(left) + " to the end of the pickle");
    return std::nullopt;
  }
  const std::string_view bytes = data_.substr(at_, static_cast<size_t>(size));
  at_ += static_cast<size_t>(size);
  return bytes;
}

std::optional<std::string_view> PickleMachine::Line(const char* what) {
  const size_t end = data_.find('\n', at_);
  if (end == std::string_view::npos) {
    at_ = data_.size();
    Fail(std::string("expected a line with ") + what + ", found no end of the line");
    return std::nullopt;
  }
  std::string_view line = data_.substr(at_, end - at_);
  at_ = end + 1;
  return line;
}

std::optional<uint64_t> PickleMachine::Number(size_t width, const char* what) {
  const auto bytes = Take(width, what);
  if (!bytes) return std::nullopt;
  uint64_t value = 0;
  for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>((*bytes)[i]);
  return value;
}

std::optional<std::string_view> PickleMachine::Counted(size_t width, const char* what) {
  const auto size = Number(width, what);
  return size ? Take(*size, what) : std::nullopt;
}

bool PickleMachine::Push(PickleId id) {
  if (stack_.size() >= limits_.stack) {
    return Fail("expected at most " + std::to_string(limits_.stack) +
                " values on the stack, found more");
  }
  stack_.push_back(id);
  return true;
}

std::optional<PickleId> PickleMachine::Top() {
  const size_t floor = marks_.empty() ? 0 : marks_.back().height;
  if (stack_.size() == floor) {
    Fail("expected a value on the stack, found none");
    return std::nullopt;
  }
  return stack_.back();
}

std::optional<PickleId> PickleMachine::Pop() {
  const std::optional<PickleId> top = Top();
  if (top) stack_.pop_back();
  return top;
}

bool PickleMachine::PushMark() {
  if (marks_.size() >= limits_.marks) {
    return Fail("expected at most " + std::to_string(limits_.marks) +
                " marks on the stack, found more");
  }
  PickleMark& mark = marks_.emplace_back();
  mark.at = static_cast<uint32_t>(op_at_);
  mark.height = static_cast<uint32_t>(stack_.size());
  mark.nodes = static_cast<uint32_t>(tree_.nodes_.size());
  mark.lists = static_cast<uint32_t>(tree_.items_.size());
  mark.calls = static_cast<uint32_t>(tree_.calls_.size());
  mark.owned = static_cast<uint32_t>(tree_.owned_.size());
  mark.runs = static_cast<uint32_t>(tree_.runs_.size());
  mark.items = static_cast<uint32_t>(items_);
  mark.plain = plain_;
  mark.recalled = recalled_;
  return true;
}

// An addition to an older value also counts for the enclosing mark.
PickleMark PickleMachine::PopMark() {
  const PickleMark mark = marks_.back();
  marks_.pop_back();
  if (mark.lowest != kNoPickle) Touch(mark.lowest);
  return mark;
}

std::optional<std::vector<PickleId>> PickleMachine::PopToMark(PickleMark* mark) {
  if (marks_.empty()) {
    Fail("expected a mark on the stack, found none");
    return std::nullopt;
  }
  const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back().height);
  std::vector<PickleId> items(first, stack_.end());
  stack_.erase(first, stack_.end());
  const PickleMark popped = PopMark();
  if (mark != nullptr) *mark = popped;
  return items;
}

// Stores a value in the memo. Picklers number the entries consecutively; other numbers are rare.
bool PickleMachine::Remember(uint64_t place) {
  const std::optional<PickleId> top = Top();
  if (!top) return false;
  const PickleMemo memo{*top, tree_.nodes_[*top].offset};
  if (place < memo_.size()) {
    memo_[static_cast<size_t>(place)] = memo;
    return true;
  }
  const bool next = place == memo_.size();
  if ((next ? memo_.size() >= limits_.memo : far_memo_.size() >= kMostFar) &&
      !far_memo_.contains(place)) {
    return Fail(
        "expected at most " + std::to_string(next ? limits_.memo : kMostFar) +
        (next ? " values in the memo, found more" : " unordered indices of the memo, found more"));
  }
  if (!next) {
    far_memo_[place] = memo;
    return true;
  }
  far_memo_.erase(place);
  memo_.push_back(memo);
  return true;
}

bool PickleMachine::Recall(uint64_t place) {
  PickleMemo* memo = nullptr;
  if (place < memo_.size()) {
    memo = &memo_[static_cast<size_t>(place)];
  } else if (const auto found = far_memo_.find(place); found != far_memo_.end()) {
    memo = &found->second;
  }
  if (memo == nullptr) {
    return Fail("expected a value at index " + std::to_string(place) + " of the memo, found none");
  }
  ++recalled_;
  const bool kept = memo->id < tree_.nodes_.size() && tree_.nodes_[memo->id].offset == memo->offset;
  return kept ? Push(memo->id) : RecallDropped(memo);
}

}  // namespace plumbline::audit
