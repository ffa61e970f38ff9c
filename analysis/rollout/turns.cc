#include "analysis/rollout/turns.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kHead = 4;

// An id that is not recorded matches any id.
bool Same(int64_t a, int64_t b) { return a == b || a < 0 || b < 0; }

// Returns true if `next`, from `head` to its end, is `logged` with some of its ids left out.
bool OnlyShortened(const std::vector<int64_t>& logged, const std::vector<int64_t>& next,
                   size_t head) {
  size_t at = head;
  bool last = false;
  for (size_t i = head; i < logged.size(); ++i) {
    last = at < next.size() && Same(logged[i], next[at]);
    at += last ? 1 : 0;
  }
  return last;
}

}  // namespace

void TurnPrefixes::Compare(const RolloutSequence& s, const Turn& next, int64_t* broken) {
  const size_t both = std::min(logged_.ids.size(), next.ids.size());
  size_t head = 0;
  while (head < both && Same(logged_.ids[head], next.ids[head])) ++head;
  if (head < std::min(both, kHead) || both == 0) return;
  ++compared;
  if (head == both) return;
  if (OnlyShortened(logged_.ids, next.ids, head)) {
    ++shortened;
    return;
  }
  if (retokenised++ == 0) {
    sequence = s.id;
    step = s.step;
    turn = next.number;
    position = next.first + static_cast<int64_t>(head);
    logged_token = logged_.ids[head];
    found_token = next.ids[head];
  }
  if (*broken == kNoTurn) *broken = next.number;
}

int64_t TurnPrefixes::Take(const RolloutSequence& s) {
  int64_t broken = kNoTurn;
  if (s.id != id_ || s.step != id_step_) {
    id_ = s.id;
    id_step_ = s.step;
    logged_ = {};
  }
  const auto& t = s.tokens;
  for (size_t i = 0; i < t.size();) {
    if (t[i].turn < 0) {
      logged_ = {};
      while (i < t.size() && t[i].turn < 0) ++i;
      continue;
    }
    Turn next{.number = t[i].turn, .first = t[i].position, .ids = {}};
    const size_t begin = i;
    for (; i < t.size() && t[i].turn == next.number &&
           t[i].position == next.first + static_cast<int64_t>(i - begin);
         ++i)
      next.ids.push_back(t[i].token);
    const bool later = logged_.number >= 0 && next.number > logged_.number;
    const bool goes_on =
        next.first == logged_.first + static_cast<int64_t>(logged_.ids.size()) && later;
    if (later && next.first == logged_.first) Compare(s, next, &broken);
    if (goes_on) {
      logged_.ids.insert(logged_.ids.end(), next.ids.begin(), next.ids.end());
      logged_.number = next.number;
    } else {
      logged_ = std::move(next);
    }
  }
  return broken;
}

v1::Verdict OtherPrompts(const TurnPrefixes& turns) {
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
  found.Title("the prompt of a turn differs from the tokens that the turn before logged")
      .Explain(absl::StrFormat("In %d of %d later turns the token ids from some position on differ "
                               "from the logged ones.",
                               turns.retokenised, turns.compared))
      .Cause("retokenisation", .9)
      .Measured("turns with a different prompt", static_cast<double>(turns.retokenised), "turns")
      .Threshold(0, "a prompt begins with the logged tokens")
      .Fix("Append each turn's token ids to the ids so far; never tokenise the text again.")
      .Samples(turns.compared)
      .Assume("a later turn continues the tokens of the turn before");
  google::protobuf::Struct& witness = *found.finding().mutable_witness();
  Put(witness, "sequence", turns.sequence);
  Put(witness, "step", static_cast<double>(turns.step));
  Put(witness, "turn", static_cast<double>(turns.turn));
  Put(witness, "position", static_cast<double>(turns.position));
  Put(witness, "logged_token", static_cast<double>(turns.logged_token));
  Put(witness, "found_token", static_cast<double>(turns.found_token));
  return found.Take();
}

}  // namespace plumbline::analysis
