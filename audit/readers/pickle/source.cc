// The bytes of a pickle, each read of them checked; stack and memo.
#include <utility>

#include "audit/readers/pickle/machine_state.h"

namespace plumbline::audit {

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
  const size_t floor = marks_.empty() ? 0 : marks_.back();
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

std::optional<std::vector<PickleId>> PickleMachine::PopToMark() {
  if (marks_.empty()) {
    Fail("expected a mark on the stack, found none");
    return std::nullopt;
  }
  const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<PickleId> items(first, stack_.end());
  stack_.erase(first, stack_.end());
  marks_.pop_back();
  return items;
}

bool PickleMachine::Remember(uint64_t place) {
  const std::optional<PickleId> top = Top();
  if (!top) return false;
  if (memo_.size() >= limits_.memo && !memo_.contains(place)) {
    return Fail("expected at most " + std::to_string(limits_.memo) +
                " values in the memo, found more");
  }
  memo_[place] = *top;
  return true;
}

bool PickleMachine::Recall(uint64_t place) {
  const auto found = memo_.find(place);
  if (found == memo_.end()) {
    return Fail("expected a value at place " + std::to_string(place) + " of the memo, found none");
  }
  return Push(found->second);
}

}  // namespace plumbline::audit
