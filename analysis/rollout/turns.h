// Tests whether each turn of a conversation continues the tokens that the previous turn logged. In
// a conversation, an engine receives the text so far. If that text is tokenised again, its tokens
// may differ from those that were drawn and are used for training.
//
// A turn is compared with the previous one if it contains the prompt of that turn: rows that begin
// at the same position, in one sequence, or in consecutive sequences with the same id and step. If
// a prompt only omits some of the logged tokens (a template that drops reasoning), it is counted
// separately. If it shares fewer than 4 leading tokens, it is another text, or padding, and is not
// compared. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/rollout/sequence.h"
#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

struct TurnPrefixes {
  static constexpr int64_t kNoTurn = -1;

  uint64_t compared = 0;     // number of turns whose prompt an earlier turn logged
  uint64_t retokenised = 0;  // number of them with other ids
  uint64_t shortened = 0;    // number of them in which ids are omitted but none replaced

  // The first turn that was tokenised again.
  std::string sequence;
  int64_t step = 0, turn = 0, position = 0;
  int64_t logged_token = 0, found_token = 0;

  // Returns the first turn of this sequence whose prompt was tokenised again, or kNoTurn.
  int64_t Take(const RolloutSequence& sequence);

  void Persist(Archive& a) {
    a(compared, retokenised, shortened, sequence, step, turn, position, logged_token, found_token);
    a(id_, id_step_, logged_);
  }

 private:
  struct Turn {
    int64_t number = kNoTurn;
    int64_t first = 0;  // first position
    std::vector<int64_t> ids;
    void Persist(Archive& a) { a(number, first, ids); }
  };
  void Compare(const RolloutSequence& sequence, const Turn& next, int64_t* broken);

  // The tokens that the current conversation has logged so far.
  std::string id_;
  int64_t id_step_ = 0;
  Turn logged_;
};

// Builds the finding that some turn's prompt has other ids; `turns` must contain at least one.
v1::Verdict OtherPrompts(const TurnPrefixes& turns);

}  // namespace plumbline::analysis
