// Does each turn of a conversation go on from the tokens that the turn before logged? An engine
// that is asked turn by turn is given the text so far; text that is tokenised again has other
// tokens than those that were drawn and are trained on.
//
// A turn is compared with the one before where it holds its prompt: rows that begin at the same
// position, in one sequence or in sequences of one id and step that come one after the other. A
// prompt that only leaves some of the logged tokens out (a template that drops reasoning) is
// counted apart. One that shares fewer than 4 leading tokens is some other text, or padding, and is
// not compared. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/rollout/sequence.h"
#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

struct TurnPrefixes {
  static constexpr int64_t kNoTurn = -1;

  uint64_t compared = 0;     // turns that hold a prompt which an earlier turn logged
  uint64_t retokenised = 0;  // of these, with other ids in it
  uint64_t shortened = 0;    // of these, with ids left out and none replaced

  // The first retokenised one.
  std::string sequence;
  int64_t step = 0, turn = 0, position = 0;
  int64_t logged_token = 0, found_token = 0;

  // The first turn of this sequence whose prompt was tokenised again, or kNoTurn.
  int64_t Take(const RolloutSequence& sequence);

  void Persist(Archive& a) {
    a(compared, retokenised, shortened, sequence, step, turn, position, logged_token, found_token);
    a(id_, id_step_, logged_);
  }

 private:
  struct Turn {
    int64_t number = kNoTurn;
    int64_t first = 0;  // position
    std::vector<int64_t> ids;
    void Persist(Archive& a) { a(number, first, ids); }
  };
  void Compare(const RolloutSequence& sequence, const Turn& next, int64_t* broken);

  // What the conversation that is being read has logged so far.
  std::string id_;
  int64_t id_step_ = 0;
  Turn logged_;
};

// The finding that some turn's prompt holds other ids; `turns` counts at least one.
v1::Verdict OtherPrompts(const TurnPrefixes& turns);

}  // namespace plumbline::rules
